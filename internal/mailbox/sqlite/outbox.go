package sqlite

import (
	"os"
)

// Outbox is the files that an agent attached to its outbound rows, without the rest of the mailbox: for a session whose
// mailbox is open elsewhere, or not at all. It reads and removes below out/ only, and never through a link.
type Outbox struct {
	dir    string
	folder *folder
}

// OpenOutbox opens the outbox of the session below dir. Of the options it uses OutUID and MaxBytes. No out/ folder there is
// mailbox.ErrHostile. Close it.
func OpenOutbox(dir string, opt HostOptions) (*Outbox, error) {
	f, err := openFolder(dir, opt.filled())
	if err != nil {
		return nil, err
	}
	return &Outbox{dir, f}, nil
}

// Open is Host.OpenOutBlob.
func (o *Outbox) Open(rowID, name string) (*os.File, int64, error) {
	return o.folder.openBlob(rowID, name)
}

// Remove is Host.RemoveOutBlobs.
func (o *Outbox) Remove(rowID string) error { return removeOutBlobs(o.dir, rowID) }

// Close releases the folder; open files stay open.
func (o *Outbox) Close() error { return o.folder.fd.Close() }
