//go:build race

package sqlite

// raceDetector slows SQLite down some twenty times: large tests shrink.
const raceDetector = true
