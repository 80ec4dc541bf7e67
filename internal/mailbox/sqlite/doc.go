// Package sqlite is the mailbox as two SQLite files, each with one writing process: in/inbound.db is written by the Host
// half, out/outbound.db by the Runner half (design.md section 5). Nothing outside this package knows a file name or runs SQL
// on a session's files.
//
// The halves trust each other differently. The runner reads what its host wrote through an ordinary read-only connection.
// The host believes nothing below out/: it opens the file by a handle of the folder, holds SQLite's lock itself and lets
// SQLite read through that one descriptor, so that SQLite opens no path the sandbox could have changed (see outfile.go).
//
// All methods may be called from several goroutines. A method that meets a lock of the other side waits for it with short
// pauses, at most five seconds, and then returns mailbox.ErrBusy. Contexts end that wait; a transaction that has begun its
// commit is not cut short.
package sqlite
