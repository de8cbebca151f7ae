/* once.h - what the files of weir once share. */
#ifndef WEIR_CLI_ONCE_H
#define WEIR_CLI_ONCE_H

#include "cli/cli.h"

/* once_list.c. weir once --list; the exit status. */
int weir__cli_once_list(cli *c);

#endif
