-- Changes of tasks, for those who watch them: see TaskChange. `revision` is null in an event that changes no state, and in those of
-- older hubs; `admitted` is the revision of the admission. `feed` is a hash of the caller (`feed_of` in task_changes.py), so that
-- a caller's changes are one range of an index.
alter table task add column feed integer not null default 0;
alter table task add column admitted integer;
create index task_admitted on task (feed, admitted) where admitted is not null;

alter table event add column feed integer not null default 0;
alter table event add column revision integer;
create index event_revision on event (feed, revision) where revision is not null;

-- The newest discarded tasks of each caller: who has seen the admission is told that the task is gone.
create table discarded (
  feed      integer not null,
  revision  integer not null,
  admitted  integer not null,
  workspace text not null,
  caller    text not null,
  id        text not null,
  role      text not null,
  worker    text,
  context   text not null,
  parent    text,
  created   real not null,
  primary key (feed, revision)
) strict, without rowid;

create index discarded_oldest on discarded (revision);
