/* assert.c - the end of a process whose invariants do not hold. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void weir__assert_failed(const char *condition, const char *file, int line)
{
    /* The process is lost: this one line on stderr is all that can still be done for whoever
     * looks at the core file. */
    (void)fprintf(stderr, "weir: assertion failed at %s:%d: %s\n", file, line, condition);
    abort();
}
