package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"nanoclaw/internal/mailbox"
)

// keptUsage is how many entries of the usage log stay.
const keptUsage = 1000

const (
	sqlSpend = `INSERT INTO usage_log (timestamp, exchange, series_id, provider, model, failed, input_tokens, output_tokens,
cache_read_tokens, cache_creation_tokens, cost_usd) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	sqlPruneUsage = `DELETE FROM usage_log WHERE id <= (SELECT max(id) FROM usage_log) - ?`
	sqlUsageAfter = `SELECT id, iif(octet_length(timestamp) > 64, '', timestamp), iif(octet_length(exchange) > 1024, '', exchange),
iif(octet_length(series_id) > 1024, '', series_id), iif(octet_length(provider) > 1024, '', provider), iif(octet_length(model) > 1024, '', model),
failed, input_tokens, output_tokens, cache_read_tokens, cache_creation_tokens, cost_usd
FROM usage_log WHERE id > ? AND typeof(failed) = 'integer' AND typeof(input_tokens) = 'integer' AND typeof(output_tokens) = 'integer'
AND typeof(cache_read_tokens) = 'integer' AND typeof(cache_creation_tokens) = 'integer' AND typeof(cost_usd) = 'real' ORDER BY id LIMIT ?`
)

func (t *transaction) spend(all []mailbox.Usage) error {
	for _, u := range all {
		at := mailbox.FormatTime(u.Timestamp)
		if at == "" {
			at = t.now
		}
		if _, err := t.exec(sqlSpend, at, null(u.Exchange), null(u.SeriesID), u.Provider, null(u.Model), u.Failed, u.InputTokens,
			u.OutputTokens, u.CacheReadTokens, u.CacheCreationTokens, u.CostUSD); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	_, err := t.exec(sqlPruneUsage, keptUsage)
	return err
}

// Usage returns what results cost, after an id in ascending order, at most limit and at most 1,000. An entry that no runner
// writes is left out; negative numbers are zero.
func (h *Host) Usage(ctx context.Context, after int64, limit int) ([]mailbox.Usage, error) {
	var out []mailbox.Usage
	err := h.outside(ctx, "read usage", func(ctx context.Context, k *conn) (err error) {
		out, err = scanUsage(ctx, k, after, limit)
		return err
	})
	return out, err
}

// Usage returns the whole usage log, oldest first.
func (r *Runner) Usage(ctx context.Context) ([]mailbox.Usage, error) {
	var out []mailbox.Usage
	err := r.own(ctx, "read usage", func(ctx context.Context, k *conn) (err error) {
		out, err = scanUsage(ctx, k, 0, keptUsage)
		return err
	})
	return out, err
}

func scanUsage(ctx context.Context, k *conn, after int64, limit int) ([]mailbox.Usage, error) {
	var out []mailbox.Usage
	err := k.rows(ctx, sqlUsageAfter, []any{after, min(max(limit, 0), maxOutRows)}, func(r *sql.Rows) error {
		var u mailbox.Usage
		var at, exchange, series, provider, model sql.NullString
		var failed int64
		if err := r.Scan(&u.ID, &at, &exchange, &series, &provider, &model, &failed, &u.InputTokens, &u.OutputTokens,
			&u.CacheReadTokens, &u.CacheCreationTokens, &u.CostUSD); err != nil {
			return fmt.Errorf("%w: the usage log: %w", mailbox.ErrHostile, err)
		}
		t, err := mailbox.ParseTime(at.String)
		if err != nil {
			return nil
		}
		u.Timestamp, u.Exchange, u.SeriesID, u.Provider, u.Model, u.Failed = t, exchange.String, series.String, provider.String, model.String, failed != 0
		for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.CacheReadTokens, &u.CacheCreationTokens} {
			*n = max(*n, 0)
		}
		u.CostUSD = max(u.CostUSD, 0)
		out = append(out, u)
		return nil
	})
	return out, err
}
