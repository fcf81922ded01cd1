-- A workspace numbers its own changes, so that its revisions tell nothing of other workspaces. `place` numbers all.
alter table change rename column revision to place;
alter table ended_lease rename column revision to place;
alter table change add column revision integer not null default 0;
alter table change add column reason text not null default '';

-- Readers continue with the revisions that they have.
update change set revision = place;

-- The newest revision of each workspace, also when its changes are deleted.
create table feed (
  workspace text primary key,
  revision  integer not null
) strict, without rowid;

insert into feed select workspace, max(revision) from change group by workspace;
