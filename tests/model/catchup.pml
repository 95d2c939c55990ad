/* Lease, epoch, fence, watermark, ledger, chain and claim, as the Lua scripts have them.
 *
 * Every atomic block is one script, or one step of a process between two scripts. Between any two
 * of them everybody else may do anything: that is how pauses of any length are modelled. Leases may
 * run out at any moment, so no property depends on how fast a clock goes.
 *
 * What can go wrong: beats and workers crash, a living leader or worker loses its lease, messages
 * are doubled or die with their worker, an operator moves the watermark back (MOVES), the server
 * forgets what it had acknowledged and goes back to an earlier state (ROLLBACKS).
 *
 * What must hold:
 *   - only the leader of the record writes (stale write);
 *   - a plan never overwrites a watermark that is not the one it was made from (lost move);
 *   - no slot is decided twice, and the watermark does not go back by itself;
 *   - no run is recorded as completed twice, none begins before an older one of its chain has ended,
 *     and no two executions hold a lease at once;
 *   - the task's effect, which comes after run.check(), is there once, unless its worker was lost
 *     before it could report it;
 *   - when nothing more happens, every slot is completed or skipped.
 * After a roll-back the server does not know any more what was executed: then the first, the
 * second and the last must hold.
 *
 * Each guard can be taken away with -D; the table in test_model.py says what follows.
 */

#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef TERMS
#define TERMS 1        /* times that a living leader is taken for dead */
#endif
#ifndef CRASHES
#define CRASHES 1      /* of workers, and as many of beats */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1     /* leases of living workers that run out */
#endif
#ifndef DOUBLES
#define DOUBLES 1      /* messages that the broker delivers twice */
#endif
#ifndef MOVES
#define MOVES 0
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 0
#endif

#define LAST (SLOTS - 1)
#define NOBODY 9
#define NO_SLOT 9

#define NONE 0
#define WAITING 1
#define QUEUED 2
#define RUNNING 3
#define DONE 4
#define SKIPPED 5

/* -- the store, and an earlier state of it --------------------------------------------------- */

byte owner = NOBODY, epoch, decided;
byte state[SLOTS], holder[SLOTS], queue[SLOTS];
bool lease[SLOTS];

byte old_owner = NOBODY, old_epoch, old_decided;
byte old_state[SLOTS], old_holder[SLOTS], old_queue[SLOTS];
bool old_lease[SLOTS];

/* -- the world ------------------------------------------------------------------------------- */

byte due;                          /* slots before this one are in the past */
byte terms, beat_crashes, worker_crashes, expiries, doubles, moves, rollbacks;
bool alive[4];                     /* owners; a beat that is started again has another name */
byte at[2] = NO_SLOT;              /* what each worker executes */
bool in_hand[SLOTS];               /* a message was taken from the queue, the run not yet claimed */
bool trusts[2];                    /* the worker relies on its lease: by its own clock it has not run out */
bool effected[2];

/* -- what the properties count --------------------------------------------------------------- */

byte decisions[SLOTS], completions[SLOTS], effects[SLOTS], excused[SLOTS];
byte version;                      /* moves of the operator, and roll-backs */

inline release() {                 /* the next of the chain, when nothing is active */
  k = 0;
#ifndef NO_GATE
  do
  :: k < SLOTS && (state[k] == QUEUED || state[k] == RUNNING) -> break
  :: k < SLOTS && state[k] == WAITING -> state[k] = QUEUED; queue[k]++; break
  :: k < SLOTS && state[k] != QUEUED && state[k] != RUNNING && state[k] != WAITING -> k++
  :: k == SLOTS -> break
  od;
#else
  do
  :: k < SLOTS -> if :: state[k] == WAITING -> state[k] = QUEUED; queue[k]++ :: else fi; k++
  :: k == SLOTS -> break
  od;
#endif
  k = 0
}

inline decide(slot, what) {        /* one decision of a commit; what is in the ledger is left alone */
  if
#ifdef NO_LEDGER
  :: true ->
#else
  :: state[slot] == NONE || (what == WAITING && state[slot] == SKIPPED) ->
#endif
    state[slot] = what; holder[slot] = NOBODY; lease[slot] = false;
    decisions[slot]++;
    assert(rollbacks || moves || decisions[slot] <= 1)
  :: else
  fi
}

#define fenced_in (term && owner == me && epoch == term)
#define overdue(s) ((state[s] == RUNNING && !lease[s]) || (state[s] == QUEUED && !queue[s] && !in_hand[s]))

inline recover(s) {                /* a run whose worker or message was lost is sent again */
  state[s] = QUEUED; holder[s] = NOBODY; queue[s]++
}

proctype Beat(byte me) {
  byte term, known, heard, from, till, seen, k;
end:
  do
  :: atomic {                      /* lead.lua: renew; read again what was changed, or forgotten */
       owner == me && (term != epoch || heard != version) ->
       term = epoch; known = decided; heard = version }
  :: atomic {                      /* lead.lua: the record did not change for its length */
       owner != me && (owner == NOBODY || !alive[owner] || terms < TERMS) ->
       if :: owner != NOBODY && alive[owner] -> terms++ :: else fi;
       owner = me; epoch++; term = epoch; known = decided; heard = version }
  :: atomic { term && known < due -> from = known; till = due; seen = version };
#ifdef WATERMARK_FIRST
     atomic { if :: owner == me && epoch == term && decided == from -> decided = till :: else fi };
#endif
     atomic {                      /* commit.lua */
       if
#if defined(NO_FENCE)
       :: false
#elif defined(COUNTER_FENCE)
       :: epoch != term -> term = 0
#else
       :: owner != me || epoch != term -> term = 0
#endif
#if !defined(NO_CAS) && !defined(WATERMARK_FIRST)
       :: decided != from -> term = 0
#endif
       :: else ->
         assert(owner == me);                         /* stale write */
#ifndef WATERMARK_FIRST
         assert(rollbacks || seen == version);        /* lost move */
         assert(rollbacks || till >= decided);        /* the watermark does not go back by itself */
         decided = till;
#endif
         k = from;
         do
         :: k < till ->
#ifdef LATEST
           if
           :: k == till - 1 -> decide(k, WAITING)
           :: else -> decide(k, SKIPPED)
           fi;
#else
           decide(k, WAITING);
#endif
           k++
         :: else -> break
         od;
         release();
         known = till
       fi;
       from = 0; till = 0; seen = 0; k = 0 }
#ifndef NO_REAPER
  :: atomic { fenced_in && overdue(0) -> recover(0) }         /* recover.lua */
  :: atomic { fenced_in && SLOTS > 1 && overdue(1) -> recover(1) }
  :: atomic { fenced_in && SLOTS > 2 && overdue(LAST) -> recover(LAST) }
#endif
  :: atomic { me < 2 && beat_crashes < CRASHES ->
       beat_crashes++; alive[me] = false; me = me + 2; alive[me] = true;
       term = 0; known = 0; heard = 0; from = 0; till = 0; seen = 0 }
  od
}

inline crash() {                   /* the worker is gone; what it held stays as it was */
  worker_crashes++;
  if :: effected[me] -> excused[slot]++ :: else fi;
  effected[me] = false; trusts[me] = false; at[me] = NO_SLOT; slot = NO_SLOT
}

#define messages (queue[0] || (SLOTS > 1 && queue[1 % SLOTS]) || queue[LAST])

proctype Worker(byte me) {
  byte slot = NO_SLOT, k;
end:
  do
  :: atomic { slot == NO_SLOT && messages ->      /* one of them comes */
       if
       :: queue[0] -> slot = 0
       :: SLOTS > 1 && queue[1] -> slot = 1
       :: SLOTS > 2 && queue[LAST] -> slot = LAST
       fi;
       queue[slot]--; in_hand[slot] = true };
     if
     :: atomic { worker_crashes < CRASHES -> in_hand[slot] = false; crash() }
     :: atomic {                   /* claim.lua */
          in_hand[slot] = false;
          if
#ifdef NO_CLAIM
          :: true ->
#else
          :: state[slot] == QUEUED || (state[slot] == RUNNING && !lease[slot]) ->
#endif
             assert(rollbacks || !trusts[1 - me]);    /* two at once */
             state[slot] = RUNNING; holder[slot] = me; lease[slot] = true; at[me] = slot; trusts[me] = true;
             k = 0;
             do                    /* everything older has ended */
             :: k < slot -> assert(rollbacks || moves || state[k] == DONE || state[k] == SKIPPED); k++
             :: else -> break
             od;
             k = 0
          :: else -> slot = NO_SLOT
          fi }
     fi
  :: atomic { slot != NO_SLOT && !effected[me] ->
       if                          /* run.check(), then the effect */
#ifdef NO_CHECK
       :: true ->
#else
       :: trusts[me] ->
#endif
          effected[me] = true; effects[slot]++;
          assert(rollbacks || moves || effects[slot] <= 1 + excused[slot])
       :: else ->                  /* lost: it reports a failure, which is refused when the run was taken */
          if
          :: state[slot] == RUNNING && holder[slot] == me -> state[slot] = QUEUED; holder[slot] = NOBODY; queue[slot]++
          :: else
          fi;
          trusts[me] = false; at[me] = NO_SLOT; slot = NO_SLOT
       fi }
  :: atomic { slot != NO_SLOT && effected[me] ->      /* finish.lua */
       if
#ifdef NO_TOKEN
       :: state[slot] == RUNNING || state[slot] == QUEUED ->
#else
       :: state[slot] == RUNNING && holder[slot] == me ->
#endif
          state[slot] = DONE; holder[slot] = NOBODY; lease[slot] = false;
          completions[slot]++;
          assert(rollbacks || completions[slot] <= 1);
          release()
       :: else                     /* superseded */
       fi;
       effected[me] = false; trusts[me] = false; at[me] = NO_SLOT; slot = NO_SLOT }
  :: atomic { slot != NO_SLOT && worker_crashes < CRASHES -> crash() }
  od
}

#define orphan(s) (lease[s] && at[holder[s] % 2] != s)

inline expire(s) {                 /* the run's lease runs out */
  lease[s] = false;
  if
  :: at[holder[s] % 2] == s -> expiries++; trusts[holder[s] % 2] = false; if :: effected[holder[s] % 2] -> excused[s]++ :: else fi
  :: else
  fi
}

proctype World() {
  byte k;
end:
  do
  :: atomic { due < SLOTS -> due++ }
  :: atomic { state[0] == RUNNING && lease[0] && (orphan(0) || expiries < EXPIRIES) -> expire(0) }
  :: atomic { SLOTS > 1 && state[1] == RUNNING && lease[1] && (orphan(1) || expiries < EXPIRIES) -> expire(1) }
  :: atomic { SLOTS > 2 && state[LAST] == RUNNING && lease[LAST] && (orphan(LAST) || expiries < EXPIRIES) -> expire(LAST) }
  :: atomic { doubles < DOUBLES && queue[0] -> doubles++; queue[0]++ }
  :: atomic { doubles < DOUBLES && SLOTS > 1 && queue[1] -> doubles++; queue[1]++ }
  :: atomic { moves < MOVES && decided ->             /* move_watermarks.lua: replay from the first slot on */
       moves++; version++; decided = 0 }
#if ROLLBACKS
  :: atomic { rollbacks < ROLLBACKS ->                /* a replica has heard everything up to here */
       old_owner = owner; old_epoch = epoch; old_decided = decided;
       k = 0;
       do
       :: k < SLOTS -> old_state[k] = state[k]; old_holder[k] = holder[k]; old_queue[k] = queue[k];
          old_lease[k] = lease[k]; k++
       :: k == SLOTS -> break
       od;
       k = 0 }
  :: atomic { rollbacks < ROLLBACKS ->                /* it is promoted */
       rollbacks++; version++;
       owner = old_owner; epoch = old_epoch; decided = old_decided;
       k = 0;
       do
       :: k < SLOTS -> state[k] = old_state[k]; holder[k] = old_holder[k]; queue[k] = old_queue[k];
          lease[k] = old_lease[k]; k++
       :: k == SLOTS -> break
       od;
       k = 0 }
#endif
  :: timeout ->                    /* nothing more happens: nothing may be lost */
       k = 0;
       do
       :: k < SLOTS -> assert(state[k] == DONE || state[k] == SKIPPED); k++
       :: k == SLOTS -> break
       od;
       assert(decided == SLOTS);
       break
  od
}

init {
  atomic {
    byte i = 0;
    do
    :: i < SLOTS -> holder[i] = NOBODY; old_holder[i] = NOBODY; i++
    :: i == SLOTS -> break
    od;
    alive[0] = true; alive[1] = true;
    run Beat(0); run Beat(1); run Worker(0); run Worker(1); run World()
  }
}
