/* struct.h - reading a public struct that may come from an older or a newer header. */
#ifndef WEIR_BASE_STRUCT_H
#define WEIR_BASE_STRUCT_H

#include "weir.h"

/* Copies a struct whose first member is `uint32_t size` into `out` (`out_bytes` of it). A smaller
 * one is zero-extended; a larger one is accepted when what this library does not know is all zero,
 * else WEIR_EINVAL. `what` names the type in the message. */
weir_status weir__struct_copy(void *out, size_t out_bytes, const void *in, const char *what,
                              weir_error *err);

#endif
