package host

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/obs/metric"
	"nanoclaw/internal/route"
	"nanoclaw/internal/store"
)

// Pauses of the supervisor (spec/channels.md section 2.17).
const (
	firstPause = time.Second
	mostPause  = 5 * time.Minute
	healthy    = 5 * time.Minute
)

// desk is what one adapter sees of the host.
type desk struct {
	info    channel.Info
	router  *route.Router
	answers answers
	kv      channel.KV
	log     *slog.Logger
	metrics *metric.Set
}

// answers takes what people choose among the options of questions.
type answers interface {
	Answer(ctx context.Context, info channel.Info, a channel.Answer) (channel.Verdict, error)
	AnswerText(ctx context.Context, info channel.Info, m channel.Inbound) (taken bool, err error)
}

var _ channel.Host = (*desk)(nil)

func newDesk(info channel.Info, router *route.Router, a answers, st *store.Store, log *slog.Logger) *desk {
	return &desk{info: info, router: router, answers: a, kv: st.KV("channel:" + info.Instance), log: log.With(obs.KeyChannel, info.Instance)}
}

func (d *desk) Inbound(ctx context.Context, m channel.Inbound) (channel.Verdict, error) {
	begun := time.Now()
	v, err := d.inbound(ctx, m)
	d.metrics.Inbound(d.info.Instance, verdictWord(v, err), time.Since(begun))
	return v, err
}

func (d *desk) inbound(ctx context.Context, m channel.Inbound) (channel.Verdict, error) {
	if taken, err := d.answers.AnswerText(ctx, d.info, m); taken || err != nil {
		return channel.Verdict{Kind: channel.Consumed}, err
	}
	return d.router.Inbound(ctx, d.info, m)
}

func (d *desk) Answer(ctx context.Context, a channel.Answer) (channel.Verdict, error) {
	return d.answers.Answer(ctx, d.info, a)
}

func (d *desk) Store() channel.KV { return d.kv }
func (d *desk) Log() *slog.Logger { return d.log }
func (d *desk) Now() time.Time    { return time.Now() }

// supervise runs every adapter until ctx ends. One that fails is run again with growing pauses; one that needs a person
// stays down and says so in its status; the others work on.
func supervise(ctx context.Context, adapters []channel.Adapter, desks map[string]*desk) {
	var all sync.WaitGroup
	for _, a := range adapters {
		all.Go(func() { keep(ctx, a, desks[a.Info().Instance]) })
	}
	all.Wait()
}

func keep(ctx context.Context, a channel.Adapter, d *desk) {
	pause := firstPause
	for {
		began := time.Now()
		err := a.Run(ctx, d)
		if ctx.Err() != nil {
			return
		}
		var fatal *channel.FatalError
		if errors.As(err, &fatal) {
			d.log.Error("a channel is down until somebody acts", obs.Error(err))
			return
		}
		if time.Since(began) > healthy {
			pause = firstPause
		}
		d.log.Error("a channel ended; it is started again", obs.Error(err), obs.KeyPause, pause.Milliseconds())
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause + rand.N(pause/5)):
		}
		pause = min(2*pause, mostPause)
	}
}
