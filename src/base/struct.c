/* struct.c - see struct.h. */
#include "base/struct.h"

#include "base/error.h"

#include <string.h>

weir_status weir__struct_copy(void *out, size_t out_bytes, const void *in, const char *what,
                              weir_error *err)
{
    uint32_t size = 0;
    if (in == NULL) {
        return weir__fail(err, WEIR_EINVAL, "%s is NULL", what);
    }
    memcpy(&size, in, sizeof size);
    if (size < sizeof size) {
        return weir__fail(err, WEIR_EINVAL, "%s has size %u: initialise it with its _INIT macro",
                          what, size);
    }
    const size_t known = size < out_bytes ? size : out_bytes;
    const unsigned char *bytes = in;
    for (size_t i = known; i < size; i++) {
        if (bytes[i] != 0) {
            return weir__fail(err, WEIR_EINVAL,
                              "%s uses a member at byte %zu that this version does not know", what,
                              i);
        }
    }
    memcpy(out, in, known);
    memset((unsigned char *)out + known, 0, out_bytes - known);
    return WEIR_OK;
}
