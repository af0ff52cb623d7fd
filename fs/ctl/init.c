/* SPDX-License-Identifier: Apache-2.0 */
/* cartonctl init: carton.toml for a directory of a model's files. */
#include "ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"

#define WORD 4096

/* Is it the working directory? A carton may not lie in the directory that it is made of. */
static bool is_here(const char *directory)
{
	char *there = realpath(directory, NULL), *here = realpath(".", NULL);
	bool is = there && here && strcmp(there, here) == 0;

	free(there);
	free(here);
	return is;
}

/* The command that makes the carton, with the options that say which files it has. */
static void put_next(const char *directory, const struct carton_init *i)
{
	char word[WORD], name[CARTON_MAX_NAME], out[CARTON_MAX_NAME + 16];

	fputs("next: cartonctl pack", stdout);
	if (i->dereference)
		fputs(" --dereference", stdout);
	for (const char *const *p = i->exclude; p && *p; p++)
		printf(" --exclude=%s", carton_shell_word(*p, word, sizeof(word)));
	snprintf(name, sizeof(name), "%s", i->name);
	for (char *p = name; *p; p++)
		*p = *p == '/' ? '_' : *p;
	snprintf(out, sizeof(out), "%s%s.carton", is_here(directory) ? "../" : "", name);
	printf(" %s", carton_shell_word(directory, word, sizeof(word)));
	printf(" %s\n", carton_shell_word(out, word, sizeof(word)));
}

static void put_chosen(const char *directory, const struct carton_init *i)
{
	text_line(stdout, "%s%scarton.toml: model_name %s", directory,
		  directory[strlen(directory) - 1] == '/' ? "" : "/", i->name);
	if (i->found)
		text_line(stdout, "runner %s, framework %s, for %s", i->runner.name,
			  i->runner.framework, i->found);
	else
		text_line(stdout, "runner %s, framework %s", i->runner.name, i->runner.framework);
	if (i->unloaded)
		text_line(stdout,
			  "noop: programs read them themselves, no runner of Carton loads %s "
			  "files",
			  i->unloaded);
}

int ctl_init(char **words, int n, const struct args *a)
{
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER };
	const struct option_values *v = &a->values;
	struct carton_init i = {
		.name = v->name,
		.runner.framework = v->framework,
		.exclude = (const char *const *)v->exclude,
		.dereference = v->dereference,
	};
	int r;

	if (n != 1)
		return n ? ctl_usage("init: too many arguments: %s", ctl_shown(words[1])) :
			   ctl_usage("init: DIRECTORY is missing");
	if (v->runner && ctl_parse_runner(v->runner, &i.runner) != EXIT_GOOD)
		return EXIT_USAGE;
	carton_log_set(ctl_on_log, &log);
	r = carton_init(words[0], &v->carton, &i);
	if (r < 0)
		return log.problems ? EXIT_BAD : ctl_failed(words[0], r);
	put_chosen(words[0], &i);
	put_next(words[0], &i);
	return ctl_flush(EXIT_GOOD);
}
