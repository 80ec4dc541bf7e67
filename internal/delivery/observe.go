package delivery

import "time"

// Observer hears what happens to deliveries and messages, for those who count. Its methods must not block.
type Observer interface {
	// Tried is called after each call of a platform with its outcome: sent, or a channel.OutcomeKind.
	Tried(instance, outcome string)
	// Delivered is called once when a delivery comes to a final state; since is the time since it was taken over.
	Delivered(instance, state string, since time.Duration)
	// Ended is called when a message's channel was told how it ended; since is the time since it was received. It may be called
	// again after a crash.
	Ended(instance, state string, since time.Duration)
}

// deaf is the Observer of those who do not ask.
type deaf struct{}

func (deaf) Tried(string, string)                    {}
func (deaf) Delivered(string, string, time.Duration) {}
func (deaf) Ended(string, string, time.Duration)     {}
