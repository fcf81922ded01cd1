-- The id of the token that a lease was enrolled or renewed with last, so that it ends with the token. Empty: not known yet.
alter table beat add column token text not null default '';

-- Paused tasks stay at a worker whose lease has ended, and end with its token too.
alter table ended_lease add column token text not null default '';
