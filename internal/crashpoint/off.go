//go:build !crashpoint

// Package crashpoint names the places where a test kills the process. It is empty unless built with the tag
// `crashpoint` (the one exception to "no globals", design.md section 3).
package crashpoint

// Hit marks a named place. Without the build tag it does nothing.
func Hit(string) {}

// Environ is what a child must be given so that its own crash points work: nothing without the build tag.
func Environ() []string { return nil }
