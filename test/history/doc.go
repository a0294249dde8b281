// Package history says which outcomes of calls that were made at once are allowed: those that the same calls can have one after
// another, in some order that agrees with the clock. Calls that were killed, or that failed halfway, may have had their effect
// or not.
package history
