/* conformance_memory.c - the conformance kit on the memory store.
 *
 * A place is a name that no other store of the process has; handles with that name share the store.
 */
#include "kit.h"

#include "store/memory/memory_store.h"

#include <stdio.h>

static bool memory_create(char place[KIT_PLACE_BYTES])
{
    static unsigned count;
    snprintf(place, KIT_PLACE_BYTES, "conformance-%u", ++count);
    return true;
}

static weir_status memory_open(const char *place, const store_options *options, weir_store **out,
                               weir_error *err)
{
    store_options o = *options;
    o.path = weir__str(place);
    return weir__memory_open(out, &o, err);
}

static void memory_destroy(const char *place)
{
    (void)place; /* it went with its last handle */
}

static void memory_url(const char *place, char *out, size_t bytes)
{
    snprintf(out, bytes, "memory:%s", place);
}

static int64_t memory_keys_count(const char *place, weir_store *s)
{
    (void)place;
    return (int64_t)weir__memory_handle(s)->core->keys.count;
}

static int64_t memory_workers_count(const char *place, weir_store *s)
{
    (void)place;
    return (int64_t)weir__memory_handle(s)->core->workers.count;
}

int main(int argc, char **argv)
{
    static const kit_adapter adapter = {
        .name = "conformance_memory",
        .features = KIT_KEEPS_TIME,
        .create = memory_create,
        .open = memory_open,
        .destroy = memory_destroy,
        .url = memory_url,
        .keys_count = memory_keys_count,
        .workers_count = memory_workers_count,
    };
    return kit_main(argc, argv, &adapter);
}
