// Package history checks that concurrent calls are linearizable: their outcomes must be possible in a sequential order that is consistent
// with the start and end times of the calls. A call that failed or was killed may or may not have taken effect.
package history
