/* reply.h - what a program may answer, taken apart.
 *
 *   {"ok":true} | {"ok":true,"append":[{"stream":…,"name":…,"data":…,"meta":…,"expect":…}, …]}
 *   {"retry":"why"} | {"permanent":"why"} | {"defer":"2026-12-01T00:00:00Z"}
 *
 * Nothing is ignored: a member that is not known may stand for an effect that somebody relies on.
 */
#ifndef WEIR_ENGINE_CHILD_REPLY_H
#define WEIR_ENGINE_CHILD_REPLY_H

#include "engine/child/child.h"

typedef struct reply_text {
    weir_str why; /* of retry and permanent: decoded, in the result's arena; may be empty */
} reply_text;

/* Takes `line` apart into kind, defer_us, reply and appends of *out, which has been reset.
 * WEIR_EINVAL: it is no reply, and the message says why. */
weir_status weir__reply_take(child_result *out, weir_str line, reply_text *text, weir_error *err);

/* Whether the last line of a program that may print whatever it likes is meant as a reply: a JSON
 * object with a member of a reply. What begins like an object and is no JSON is taken for one too,
 * so that a reply with a mistake in it is a failure and not lost. WEIR_ENOMEM. */
weir_status weir__reply_is_meant(weir_str line, bool *meant, weir_error *err);

#endif
