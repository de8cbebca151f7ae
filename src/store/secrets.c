/* secrets.c - see secrets.h. */
#include "store/secrets.h"

#include "base/error.h"
#include "base/str.h"

#include <string.h>

enum { SECRETS_MAX = 8, SECRET_BYTES_MAX = 512 };

/* Runs of the URL that are passwords, in order. */
typedef struct secrets {
    weir_str runs[SECRETS_MAX];
    size_t count;
} secrets;

static size_t text_find(weir_str text, size_t from, const char *any)
{
    size_t i = from;
    while (i < text.len && strchr(any, text.ptr[i]) == NULL) {
        i++;
    }
    return i;
}

static size_t find_last(weir_str text, size_t from, size_t end, char ch)
{
    for (size_t i = end; i > from; i--) {
        if (text.ptr[i - 1] == ch) {
            return i - 1;
        }
    }
    return end;
}

static size_t after_scheme(weir_str url)
{
    for (size_t i = 0; i + 2 < url.len; i++) {
        if (memcmp(url.ptr + i, "://", 3) == 0) {
            return i + 3;
        }
    }
    return 0;
}

/* The password between USER: and @, as generous as can be: up to the last @ before the parameters.
 * false: there is none. */
static bool user_password(weir_str url, weir_str *password)
{
    const size_t start = after_scheme(url);
    const size_t question = text_find(url, start, "?");
    size_t at = find_last(url, start, question, '@');
    if (at == question) {
        /* A '?' in the password: then the @ comes after it, and no '/' in between. */
        at = text_find(url, question, "@/=&");
        if (at == url.len || url.ptr[at] != '@') {
            return false;
        }
    }
    const size_t colon = text_find(url, start, ":");
    if (colon >= at) {
        return false;
    }
    *password = (weir_str){ .ptr = url.ptr + colon + 1, .len = at - colon - 1 };
    return true;
}

static bool is_secret_name(weir_str name)
{
    return weir__str_equal(name, weir__str("password")) ||
           weir__str_equal(name, weir__str("sslpassword"));
}

static void secrets_collect(weir_str url, secrets *s)
{
    weir_str password = { 0 };
    *s = (secrets){ 0 };
    size_t at = after_scheme(url);
    if (user_password(url, &password)) {
        s->runs[s->count++] = password;
        at = (size_t)(password.ptr - url.ptr) + password.len;
    }
    at = text_find(url, at, "?");
    while (at < url.len && s->count < SECRETS_MAX) {
        const size_t end = text_find(url, at + 1, "&");
        const size_t equals = text_find(url, at + 1, "=&");
        const weir_str name = { .ptr = url.ptr + at + 1, .len = equals - at - 1 };
        if (equals < end && is_secret_name(name)) {
            s->runs[s->count++] =
                (weir_str){ .ptr = url.ptr + equals + 1, .len = end - equals - 1 };
        }
        at = end;
    }
}

bool weir__url_shown(weir_buffer *out, weir_str url)
{
    secrets s;
    size_t done = 0;
    bool ok = true;
    secrets_collect(url, &s);
    for (size_t i = 0; i < s.count && ok; i++) {
        const size_t start = (size_t)(s.runs[i].ptr - url.ptr);
        ok = weir__buffer_add(out, url.ptr + done, start - done) &&
             weir__buffer_add_text(out, "***");
        done = start + s.runs[i].len;
    }
    return ok && (done == url.len || weir__buffer_add(out, url.ptr + done, url.len - done));
}

bool weir__url_without_passwords(weir_buffer *out, weir_str url)
{
    secrets s;
    size_t done = 0;
    bool ok = true;
    secrets_collect(url, &s);
    for (size_t i = 0; i < s.count && ok; i++) {
        /* From the colon behind USER, or from the name of the parameter. */
        size_t start = (size_t)(s.runs[i].ptr - url.ptr) - 1;
        size_t end = start + 1 + s.runs[i].len;
        if (url.ptr[start] == '=') {
            while (url.ptr[start - 1] != '?' && url.ptr[start - 1] != '&') {
                start--;
            }
            end += end < url.len ? 1 : 0; /* the & behind it */
        }
        ok = weir__buffer_add(out, url.ptr + done, start - done);
        done = end;
    }
    ok = ok && weir__buffer_add(out, url.ptr + done, url.len - done);
    if (ok && s.count > 0 && (out->ptr[out->len - 1] == '?' || out->ptr[out->len - 1] == '&')) {
        out->len--; /* nothing follows it any more */
    }
    return ok;
}

static char *find_run(char *text, weir_str run)
{
    const size_t len = strlen(text);
    for (size_t i = 0; i + run.len <= len; i++) {
        if (memcmp(text + i, run.ptr, run.len) == 0) {
            return text + i;
        }
    }
    return NULL;
}

static void scrub_text(char *text, size_t bytes, weir_str secret)
{
    static const char stars[] = "***";
    char *at = text;
    if (secret.len == 0) {
        return;
    }
    while ((at = find_run(at, secret)) != NULL) {
        const size_t rest = strlen(at + secret.len);
        /* Shorter or longer: what does not fit any more is cut off at the end. */
        const size_t room = bytes - (size_t)(at - text) - 1;
        const size_t stars_len = room < 3 ? room : 3;
        const size_t kept = rest < room - stars_len ? rest : room - stars_len;
        memmove(at + stars_len, at + secret.len, kept);
        memcpy(at, stars, stars_len);
        at += stars_len;
        at[kept] = '\0';
    }
}

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9') {
        return ch - '0';
    }
    const char lower = (char)(ch | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* With %XX decoded where it is one; "" when it does not fit. */
static weir_str secret_decoded(weir_str raw, char out[SECRET_BYTES_MAX])
{
    size_t len = 0;
    for (size_t i = 0; i < raw.len && len < SECRET_BYTES_MAX; i++) {
        char ch = raw.ptr[i];
        if (ch == '%' && i + 2 < raw.len && hex_digit(raw.ptr[i + 1]) >= 0 &&
            hex_digit(raw.ptr[i + 2]) >= 0) {
            ch = (char)(hex_digit(raw.ptr[i + 1]) * 16 + hex_digit(raw.ptr[i + 2]));
            i += 2;
        }
        out[len++] = ch;
    }
    return (weir_str){ .ptr = out, .len = len == SECRET_BYTES_MAX ? 0 : len };
}

void weir__url_scrub(weir_str url, weir_error *err)
{
    secrets s;
    char plain[SECRET_BYTES_MAX];
    if (err == NULL) {
        return;
    }
    secrets_collect(url, &s);
    for (size_t i = 0; i < s.count; i++) {
        const weir_str text = secret_decoded(s.runs[i], plain);
        scrub_text(err->message, sizeof err->message, s.runs[i]);
        scrub_text(err->detail, sizeof err->detail, s.runs[i]);
        scrub_text(err->message, sizeof err->message, text);
        scrub_text(err->detail, sizeof err->detail, text);
    }
}

weir_status weir__url_check_password(weir_str url, weir_error *err)
{
    weir_str password;
    if (!user_password(url, &password)) {
        return WEIR_OK;
    }
    const size_t bad = text_find(password, 0, "/@?");
    if (bad == password.len) {
        return WEIR_OK;
    }
    /* HOST:PORT/DATABASE with an @ in the database's name is no password. */
    size_t digits = 0;
    while (digits < bad && password.ptr[digits] >= '0' && password.ptr[digits] <= '9') {
        digits++;
    }
    if (password.ptr[bad] == '/' && digits == bad) {
        return WEIR_OK;
    }
    return weir__fail(err, WEIR_EINVAL,
                      "the password in the store URL has a '%c': write %%%02X for it",
                      password.ptr[bad], (unsigned)password.ptr[bad]);
}
