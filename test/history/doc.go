// Package history checks that concurrent calls are linearizable: that their outcomes are possible if the calls run one after
// another, in some order that is consistent with their start and end times. A call that failed or was killed may or may not have
// had its effect.
package history
