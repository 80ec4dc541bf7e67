package tool

import (
	"context"
	"fmt"

	"nanoclaw/internal/mailbox"
)

// request hands an act to the host and tells the model how it goes on; what is the act in words.
func request(ctx context.Context, s Session, action any, what string) (string, error) {
	content, err := mailbox.EncodeContent(action)
	if err != nil {
		return "", err
	}
	id, err := s.Request(ctx, content)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("asked the host to %s (request %s). It is not done yet: the host decides, an admin may have to approve. The outcome arrives as a message; do not ask again before it has come.", what, id), nil
}
