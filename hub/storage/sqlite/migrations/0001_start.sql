create table meta (
  name  text primary key,
  value any not null
) strict, without rowid;

create table lease (
  workspace     text not null,
  role          text not null,
  instance      text not null,
  owner         text not null,
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

-- The first message is in the row itself, so that admitting a task is one insert.
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
  spoken         text not null,
  alias          text not null,
  state          text not null,
  last           integer not null,
  position       text,
  size           integer not null,
  created        real not null,
  updated        real not null,
  -- null while the task is open; else since when nothing has happened to it: its end, or the last try to tell a receiver.
  idle_since     real,
  hidden         integer not null default 0,
  pushes         integer not null default 0,
  turn_after     integer not null,
  turn_message   text not null,
  turn_dialect   text not null,
  turn_params    blob not null,
  caller_key     text
) strict;

create index task_newest on task (workspace, caller, updated, id);
create index task_context on task (workspace, caller, context);
create index task_idle on task (idle_since);
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

-- place = task.key * 2^24 + cursor: a log is one range of one B-tree, appended at its end, without a second index.
create table event (
  place   integer primary key,
  kind    text not null,
  state   text,
  dialect text not null,
  body    blob not null
) strict;

create table push_config (
  task        integer not null,
  id          text not null,
  url         text not null,
  host        text not null,
  dialect     text not null,
  schemes     text not null,
  token       blob,
  credentials blob,
  unique (task, id)
) strict;

-- The log is the outbox: a receiver has the events up to `sent`, and is owed those up to `last`. `only` is 0, or the one event
-- that is redelivered. `at`: claimed until then, or not due before. `fence` counts claims, so that an old claim is detected.
create table delivery (
  task     integer not null,
  config   text not null,
  only     integer not null,
  host     text not null,
  sent     integer not null,
  last     integer not null,
  since    real not null,
  at       real not null,
  held     integer not null default 0,
  fence    integer not null default 0,
  failures integer not null default 0,
  failed   real,
  primary key (task, config, only)
) strict, without rowid;

-- Holds only what is owed, however many tasks and configs there are.
create index delivery_due on delivery (host, at) where sent < last;

create table dead_letter (
  task      integer not null,
  config    text not null,
  cursor    integer not null,
  workspace text not null,
  caller    text not null,
  reason    text not null,
  at        real not null,
  primary key (task, config, cursor)
) strict, without rowid;

create index dead_letter_newest on dead_letter (workspace, caller, at, task, config, cursor);

-- Runs in the transaction of the append. A task without configs costs one comparison.
create trigger task_owes after update of last on task when new.pushes and new.last > old.last and not new.hidden begin
  update delivery set since = case when sent = last then new.updated else since end, last = new.last
  where task = new.key and only = 0;
end;

create trigger task_gone after delete on task when old.pushes begin
  delete from push_config where task = old.key;
  delete from delivery where task = old.key;
  delete from dead_letter where task = old.key;
end;
