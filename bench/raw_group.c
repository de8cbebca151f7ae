/* raw_group.c - see raw_group.h. */
#include "raw_group.h"

#include "bench.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WAITING, LEADING, DONE };

typedef struct group {
    pthread_mutex_t lock; /* guards what follows */
    group_item *first, **last;
    void *idle[GROUP_WRITERS_MAX];
    int64_t idle_count;
    group_write_fn *write;
    int64_t most;
} group;

static void item_wait(group_item *item)
{
    while (atomic_load(&item->state) == WAITING) {
        (void)syscall(SYS_futex, &item->state, FUTEX_WAIT_PRIVATE, WAITING, NULL, NULL, 0);
    }
}

/* The item may be gone once its state is stored; waking nobody at its address does no harm. */
static void item_wake(group_item *item, uint32_t state)
{
    atomic_store(&item->state, state);
    (void)syscall(SYS_futex, &item->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static group_item *queue_pop_locked(group *g)
{
    group_item *item = g->first;
    if (item != NULL) {
        g->first = item->next;
        if (g->first == NULL) {
            g->last = &g->first;
        }
        item->next = NULL;
    }
    return item;
}

/* Writes the caller's item and what waits. */
static void group_lead(group *g, group_item *mine)
{
    group_item *tail = mine;
    int64_t count = 1;
    (void)pthread_mutex_lock(&g->lock);
    while (count < g->most && g->first != NULL) {
        tail->next = queue_pop_locked(g);
        tail = tail->next;
        count++;
    }
    (void)pthread_mutex_unlock(&g->lock);
    g->write(mine->writer, mine, count);
    (void)pthread_mutex_lock(&g->lock);
    group_item *leader = queue_pop_locked(g);
    if (leader != NULL) {
        leader->writer = mine->writer;
    } else {
        g->idle[g->idle_count++] = mine->writer;
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (leader != NULL) {
        item_wake(leader, LEADING);
    }
    for (group_item *item = mine->next, *next; item != NULL; item = next) {
        next = item->next;
        item_wake(item, DONE);
    }
}

static void group_append(void *caller, const bench_event *event)
{
    group *g = caller;
    group_item mine = { .event = event, .state = WAITING };
    (void)pthread_mutex_lock(&g->lock);
    if (g->idle_count > 0) {
        mine.writer = g->idle[--g->idle_count];
    } else {
        *g->last = &mine;
        g->last = &mine.next;
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (mine.writer == NULL) {
        item_wait(&mine);
    }
    if (atomic_load(&mine.state) != DONE) {
        group_lead(g, &mine);
    }
}

static void *group_open(void *ctx)
{
    return ctx;
}

void group_run(int argc, char **argv, group_write_fn *write, void *const *writers,
               int64_t writers_count, int64_t most)
{
    group g = { .lock = PTHREAD_MUTEX_INITIALIZER, .write = write, .most = most };
    const bench_side side = { .open = group_open, .append = group_append };
    g.last = &g.first;
    bench_must(writers_count >= 1 && writers_count <= GROUP_WRITERS_MAX, "1 to 4 writers");
    for (int64_t i = 0; i < writers_count; i++) {
        g.idle[g.idle_count++] = writers[i];
    }
    bench_load_run(argc, argv, &side, &g);
}
