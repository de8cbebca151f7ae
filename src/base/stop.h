/* stop.h - a flag that is set once and can be polled: what is waited for does not matter any more.
 *
 *     weir__stop_init, then any number of threads look at it or poll its descriptor;
 *     weir__stop_set, by any thread, once or more often;
 *     weir__stop_destroy, when nobody looks any more.
 */
#ifndef WEIR_BASE_STOP_H
#define WEIR_BASE_STOP_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct weir_stop {
    int fd; /* owned; readable once it is set */
    _Atomic bool set;
} weir_stop;

bool weir__stop_init(weir_stop *s); /* false: nothing was made */
void weir__stop_destroy(weir_stop *s);
void weir__stop_set(weir_stop *s);
/* NULL is never set, and has no descriptor: -1. */
bool weir__stop_is_set(const weir_stop *s);
int weir__stop_fd(const weir_stop *s);

#endif
