-- What `ncl trace` tells and nothing else keeps: how a message was routed, and the states a delivery went through.
ALTER TABLE inbound_messages ADD COLUMN routed TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger ADD COLUMN history TEXT NOT NULL DEFAULT '';
