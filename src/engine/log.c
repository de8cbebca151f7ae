/* log.c - the fields of a log line as text for people and as JSON for programs.
 *
 * What stays true: a line stays one line whatever the fields hold, and both forms can be read back.
 */
#include "engine/log.h"

#include "base/json.h"
#include "base/str.h"

/* Whether a value can stand without quotes: then it is its own text, and ends at the next space. */
static bool is_plain(weir_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        const unsigned char c = (unsigned char)text.ptr[i];
        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f) {
            return false;
        }
    }
    return text.len > 0;
}

static bool add_text_field(weir_buffer *out, const log_field *f)
{
    if (!weir__buffer_add_text(out, f->name) || !weir__buffer_add_text(out, "=")) {
        return false;
    }
    if (f->text.ptr == NULL) {
        return weir__buffer_add_i64(out, f->number);
    }
    return is_plain(f->text) ? weir__buffer_add(out, f->text.ptr, f->text.len)
                             : weir__json_write_string(out, f->text);
}

static bool add_json_field(weir_buffer *out, const log_field *f)
{
    if (!weir__json_write_string(out, weir__str(f->name)) || !weir__buffer_add_text(out, ":")) {
        return false;
    }
    return f->text.ptr == NULL ? weir__buffer_add_i64(out, f->number)
                               : weir__json_write_string(out, f->text);
}

bool weir__log_to_text(weir_buffer *out, const log_field *fields, size_t count)
{
    const size_t len = out->len;

    for (size_t i = 0; i < count; i++) {
        if ((i > 0 && !weir__buffer_add_text(out, " ")) || !add_text_field(out, &fields[i])) {
            out->len = len;
            return false;
        }
    }
    return true;
}

bool weir__log_to_json(weir_buffer *out, const log_field *fields, size_t count)
{
    const size_t len = out->len;
    bool ok = weir__buffer_add_text(out, "{");

    for (size_t i = 0; ok && i < count; i++) {
        ok = (i == 0 || weir__buffer_add_text(out, ",")) && add_json_field(out, &fields[i]);
    }
    ok = ok && weir__buffer_add_text(out, "}");
    if (!ok) {
        out->len = len;
    }
    return ok;
}
