-- What tasks have used of models. Sums of a task by model and currency; "nanos" are billionths of the currency.
create table task_usage (
  task          integer not null,
  model         text not null,
  currency      text not null,
  input_tokens  integer not null,
  output_tokens integer not null,
  nanos         integer not null,
  primary key (task, model, currency)
) strict, without rowid;

-- Sums of a day (since 1970, UTC). They stay when their tasks go; an erased holder is ''.
create table day_usage (
  workspace     text not null,
  day           integer not null,
  role          text not null,
  holder        text not null,
  model         text not null,
  currency      text not null,
  input_tokens  integer not null,
  output_tokens integer not null,
  nanos         integer not null,
  primary key (workspace, day, role, holder, model, currency)
) strict, without rowid;
create index day_usage_holder on day_usage (workspace, holder, day);
create index day_usage_day on day_usage (day);

-- The budget that a task was called with, and what it and all below it have spent. `spender`: who spends from which.
create table budget (
  number     integer primary key,
  task       text not null unique,
  max_tokens integer,
  max_nanos  integer,
  currency   text not null,
  tokens     integer not null default 0,
  nanos      integer not null default 0
) strict;
create table spender (
  task   integer not null,
  budget integer not null,
  primary key (task, budget)
) strict, without rowid;
create index spender_budget on spender (budget);
create trigger usage_of_task after delete on task begin
  delete from task_usage where task = old.key;
  delete from budget where number in (select budget from spender where task = old.key)
    and not exists (select 1 from spender where budget = budget.number and task <> old.key);
  delete from spender where task = old.key;
end;
