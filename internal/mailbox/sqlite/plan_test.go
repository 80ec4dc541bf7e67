package sqlite

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

// No statement of the message path may walk a table of messages, whatever the history holds.
func TestW2QueryPlans(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.wrote(1)
	statements := map[string][]string{
		filepath.Join(s.dir, inDir, inboundFile): {
			sqlInsertIn, sqlInSeqByID, sqlInByID, sqlInBySeq, sqlMaxIn, sqlCounter, sqlSetCounter, sqlDueReady, sqlDueTimed, sqlNextDue, sqlSettle,
			sqlTries, sqlRetry, sqlGiveUp, sqlReadyOldest, sqlReadyNewest, sqlTimedOldest, sqlTimedNewest, sqlClaimedRow, sqlLatestFrom, sqlMarkDelivered, sqlDelivered,
			sqlPruneList, sqlPruneRow,
		},
		s.outbound(): {
			sqlOutAfter, sqlAcksAfter, sqlClaims, sqlMaxOut, sqlMaxChange, sqlAckStatus, sqlClaim, sqlFinal, sqlRelease, sqlDisownStale, sqlHasClaim,
			sqlInsertOut, sqlOutByID, sqlOutExchange, sqlTurn, sqlSetState, sqlDeleteState, sqlSetContainer,
		},
	}
	for path, all := range statements {
		db, err := sql.Open("sqlite", dsn(path, "ro"))
		must(t, err)
		for _, statement := range all {
			for _, step := range plan(t, db, statement) {
				walks := strings.HasPrefix(step, "SCAN messages_") || strings.HasPrefix(step, "SCAN processing_ack") || strings.HasPrefix(step, "SCAN delivered")
				// Walking this index is walking the open claims.
				if walks && !strings.HasSuffix(step, "INDEX processing_ack_claims") {
					t.Errorf("%s\n%s", step, statement)
				}
				if strings.Contains(step, "TEMP B-TREE") && statement != sqlTimedOldest && statement != sqlTimedNewest { // those are as many as are due
					t.Errorf("sorts: %s\n%s", step, statement)
				}
			}
		}
		must(t, db.Close())
	}
}

func plan(t *testing.T, db *sql.DB, statement string) []string {
	t.Helper()
	args := make([]any, strings.Count(statement, "?"))
	rows, err := db.Query("EXPLAIN QUERY PLAN "+statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		must(t, rows.Scan(&id, &parent, &unused, &step))
		steps = append(steps, step)
	}
	must(t, rows.Err())
	return steps
}
