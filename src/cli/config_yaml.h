/* config_yaml.h - reading YAML against tables of keys, so that everything that is wrong with a file
 * is told at once: file, line, column, what was found and what was expected.
 *
 * A mapping is described by an array of config_key: which keys there are, how the value of each is
 * taken, and where it goes. A key that is not in the table is an error, never passed over. What is
 * wrong with one value does not keep the others from being looked at. A key that stands twice in a
 * mapping, any mapping of the file, is told when the file is loaded.
 */
#ifndef WEIR_CLI_CONFIG_YAML_H
#define WEIR_CLI_CONFIG_YAML_H

#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yaml.h>

enum {
    CONFIG_BYTES_MAX = 4 * 1024 * 1024,
    CONFIG_DEPTH_MAX = 32,
    CONFIG_PROBLEMS_MAX = 100, /* told one by one; the rest is counted */
    CONFIG_KEYS_MAX = 32,      /* of one kind of mapping               */
};

/* A file that is being read. Zeroed and with its path it is ready for weir__config_load. */
typedef struct config_file {
    const char *path; /* borrowed; as in messages */
    weir_buffer bytes;
    yaml_document_t document; /* when loaded */
    bool loaded;
    bool broken;          /* not one document of YAML: there is nothing to take */
    weir_buffer problems; /* one line each */
    size_t problems_count;
    weir_arena *arena; /* borrowed: texts that were taken are copied there */
    bool full;         /* out of memory */
} config_file;

/* --insecure: from now on a file may belong to anybody (base/file.h). The arguments are read before
 * any file is. */
void weir__config_accept_insecure(void);

typedef struct config_key config_key;
/* Takes the value of a key into the struct that belongs to the mapping. */
typedef void (*config_take_fn)(config_file *f, const config_key *key, yaml_node_t *value,
                               void *into);
struct config_key {
    const char *name;
    config_take_fn take;
    size_t offset;    /* of the field, for the takers below */
    int64_t min, max; /* of a number or a duration          */
    bool required;
};

/* Reads and parses. What is wrong with the syntax is a problem, and so are two documents; after one
 * there is no document. A file that is not there: WEIR_ENOTFOUND. */
weir_status weir__config_load(config_file *f, weir_error *err);
void weir__config_unload(config_file *f); /* also after a failure; keeps `problems` */
/* NULL: the file says nothing. */
yaml_node_t *weir__config_root(config_file *f);
yaml_node_t *weir__config_node(config_file *f, int index);

/* One problem, at the place where the node begins. */
void weir__config_problem(config_file *f, const yaml_node_t *at, const char *format, ...)
    WEIR_PRINTF(3, 4);
/* NAME is FOUND, expected EXPECTED. */
void weir__config_expected(config_file *f, const yaml_node_t *found, const char *name,
                           const char *expected);

/* what: the mapping in messages, "a reaction". A value that stands in the file twice, by an alias,
 * is taken twice. */
void weir__config_mapping(config_file *f, yaml_node_t *node, const char *what,
                          const config_key *keys, size_t keys_count, void *into);
/* Says that the key is unknown, and what was probably meant. */
void weir__config_unknown(config_file *f, const yaml_node_t *key, const config_key *keys,
                          size_t keys_count);

/* Whether a value stands there at all: `key:` alone gives none. */
bool weir__config_is_nothing(const yaml_node_t *node);
/* A scalar that is not nothing; borrowed from the document. */
bool weir__config_scalar(const yaml_node_t *node, weir_str *out);
/* A copy in the arena, NUL-terminated, without a NUL inside. false: told, or out of memory. */
bool weir__config_text(config_file *f, const char *name, const yaml_node_t *node,
                       const char *expected, weir_str *out);
bool weir__config_number(config_file *f, const config_key *key, const yaml_node_t *node,
                         int64_t *out);
bool weir__config_duration(config_file *f, const config_key *key, const yaml_node_t *node,
                           int64_t *out);
/* The index of one of `count` words. */
bool weir__config_choice(config_file *f, const config_key *key, const yaml_node_t *node,
                         const char *const *words, size_t count, int32_t *out);

/* WEIR_EINVAL with the first problem, and how many there are. */
weir_status weir__config_report(const config_file *f, weir_error *err);

/* Takers for fields of these types at `offset`. */
void weir__config_take_i32(config_file *f, const config_key *key, yaml_node_t *value, void *into);
void weir__config_take_duration(config_file *f, const config_key *key, yaml_node_t *value,
                                void *into);
/* The URL of a store: const char *, in the arena. */
void weir__config_take_store(config_file *f, const config_key *key, yaml_node_t *value, void *into);

#endif
