/* slot_program.c - events that are handled by programs. */
#include "base/str.h"
#include "engine/slot_private.h"

void weir__slot_program(slot *s, weir_delivery *d)
{
    (void)d;
    weir__slot_failed(s, true, weir__str("programs cannot be run yet"), HANDLER_ERROR_BYTES_MAX);
}

void weir__slot_programs_free(struct slot_programs *p)
{
    weir__free(p);
}
