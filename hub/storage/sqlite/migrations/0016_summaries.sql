-- What is kept of a task when its log is deleted: nothing of its content. The key is the order of lists; the first index is for
-- one task, the second for deletion.
create table summary (
  workspace text not null,
  caller    text not null,
  updated   real not null,
  id        text not null,
  role      text not null,
  worker    text,
  context   text not null,
  state     text not null,
  events    integer not null,
  created   real not null,
  primary key (workspace, caller, updated, id)
) strict, without rowid;
create unique index summary_id on summary (id);
create index summary_oldest on summary (updated);
