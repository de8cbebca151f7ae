/* error_text.h - the text of an error as it is kept with a target or a parked event. */
#ifndef WEIR_STORE_ERROR_TEXT_H
#define WEIR_STORE_ERROR_TEXT_H

#include "base/memory.h"
#include "weir.h"

#include <stddef.h>

/* At most bytes_max bytes of it, valid UTF-8, no NUL: '?' stands for what is neither. A copy in the
 * arena; a text that cannot be copied is left out. */
weir_str weir__error_text(weir_arena *arena, weir_str text, size_t bytes_max);
/* Its beginning, at most STORE_ERROR_TEXT_BYTES_MAX bytes, cut between characters. Borrowed. */
weir_str weir__error_text_cut(weir_str text);

#endif
