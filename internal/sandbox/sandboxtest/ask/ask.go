// Package ask is what sandboxtest and its probe say to each other: one JSON object per line and direction.
package ask

// What a Question can ask for.
const (
	Ping     = "ping"
	Tell     = "tell"     // Answer.Report
	Write    = "write"    // make the file Path
	Read     = "read"     // Text of the file Path
	Fill     = "fill"     // write N bytes to Path; Answer.N is how many it took
	Fork     = "fork"     // start up to N processes marked Mark, tell how many there were, end them
	Family   = "family"   // start a child, one in a process session of its own, and an orphan, all marked Mark
	Hog      = "hog"      // use N bytes of memory
	Spin     = "spin"     // use all processors for N milliseconds; Answer.N is the cpu time used, in milliseconds
	Dial     = "dial"     // connect to the TCP address Path
	Say      = "say"      // write Mark to stderr
	Stubborn = "stubborn" // ignore SIGTERM from now on
	Exit     = "exit"     // end with code N
)

// Question to the probe.
type Question struct {
	Do   string `json:"do"`
	Path string `json:"path,omitempty"`
	Mark string `json:"mark,omitempty"`
	N    int64  `json:"n,omitempty"`
}

// Answer of the probe.
type Answer struct {
	Error  string `json:"error,omitempty"`
	Text   string `json:"text,omitempty"`
	N      int64  `json:"n,omitempty"`
	Report Report `json:"report"`
}

// Report is what the probe sees around itself.
type Report struct {
	Env         []string          `json:"env"`
	UID         int               `json:"uid"`
	GID         int               `json:"gid"`
	Groups      []int             `json:"groups"`
	Dir         string            `json:"dir"`
	Status      map[string]string `json:"status"` // lines of /proc/self/status
	UIDMap      []string          `json:"uid_map"`
	Processes   []string          `json:"processes"` // command lines
	Interfaces  []string          `json:"interfaces"`
	Addresses   []string          `json:"addresses"` // those beyond loopback
	Routes      []string          `json:"routes"`
	Descriptors []string          `json:"descriptors"`
	Passwd      string            `json:"passwd"`
	Etc         []string          `json:"etc"`
	Root        []string          `json:"root"`
}
