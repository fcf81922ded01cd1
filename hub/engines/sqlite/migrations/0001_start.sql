create table meta (
  name  text primary key,
  value any not null
) strict, without rowid;

create table lease (
  workspace     text not null,
  role          text not null,
  instance      text not null,
  epoch         integer not null,
  boot          text not null,
  offer         text not null,
  ttl           real not null,
  health        text not null,
  reason        text not null,
  registered_at real not null,
  -- What beats change, written about once a second. expires_at is null where the lease never ends.
  capacity      integer,
  in_flight     integer not null,
  last_seen     real not null,
  expires_at    real,
  primary key (workspace, role, instance)
) strict, without rowid;

create table change (
  revision  integer primary key autoincrement,
  kind      text not null,
  workspace text not null,
  role      text not null,
  instance  text not null,
  epoch     integer not null,
  health    text,
  at        real not null
) strict;

-- The first message stands in the row itself, so that to admit a task is one insert.
create table task (
  key            integer primary key,
  id             text not null unique,
  workspace      text not null,
  caller         text not null,
  role           text not null,
  worker         text,
  epoch          integer not null,
  context        text not null,
  worker_task    text not null,
  worker_context text not null,
  dialect        text not null,
  state          text not null,
  last           integer not null,
  position       text,
  size           integer not null,
  created        real not null,
  updated        real not null,
  ended          real,
  hidden         integer not null default 0,
  turn_after     integer not null,
  turn_message   text not null,
  turn_dialect   text not null,
  turn_params    blob not null,
  caller_key     text
) strict;

create index task_newest on task (workspace, caller, updated, id);
create index task_context on task (workspace, caller, context);
create index task_ended on task (ended);
create unique index task_caller_key on task (workspace, caller, caller_key) where caller_key is not null;

create table turn (
  task    integer not null,
  seq     integer not null,
  after   integer not null,
  message text not null,
  dialect text not null,
  params  blob not null,
  primary key (task, seq)
) strict;

-- place = task.key * 2^24 + cursor: a log is one run of one tree, written at its right end, with no second index to keep.
create table event (
  place   integer primary key,
  kind    text not null,
  state   text,
  dialect text not null,
  body    blob not null
) strict;
