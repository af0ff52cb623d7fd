/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/option_list.h"
#include "common/privacy.h"

#define ALL "cartonctl" /* what every command takes */

/* ---- help ---- */

/* Fits 24 lines of 80 columns. */
static void put_help(const struct ctl_command *commands)
{
	fputs("usage: cartonctl COMMAND [OPTION...] [ARGUMENT...] | help [COMMAND] | version\n"
	      "SOURCE: file, directory, https://, s3://, hf://ORG/REPO, ms://, oci://HOST/NAME\n",
	      stdout);
	for (const struct ctl_command *c = commands; c->name; c++) {
		int n = c->example ? printf("  %s %s", c->name, c->args) : 0;

		if (n > 0)
			printf("%*s%s\n", n < 24 ? 26 - n : 2, "", c->help);
	}
	fputs("Exit: 0 good, 1 usage or failure, 2 damaged (verify), 75 try again later\n", stdout);
}

static void put_command_help(const struct ctl_command *c)
{
	printf("usage: cartonctl %s%s%s\n%*s%s%s\n", c->name, *c->args ? " " : "", c->args, 7, "",
	       c->help, strstr(c->args, " OUT") ? "; OUT - is stdout" : "");
	if (!c->example)
		return;
	printf("example: cartonctl %s %s\n\n", c->name, c->example);
	if (option_put_help(stdout, c->name, true))
		putchar('\n');
	if (!c->opens_none) {
		fputs("Options of all commands that open a carton:\n", stdout);
		option_put_help(stdout, ALL, true);
	}
	printf("See %s(1)%s.\n", c->page ? c->page : "cartonctl",
	       c->opens_none ? "" : ", and cartonfs(1) for what the options mean");
}

/* The first word of the next alternative, if there are any; NULL behind the last. */
static const char *next_alternative(const char *args, const char *at, size_t *ret_n)
{
	at = at ? strchr(at, '|') : strchr(args, '|') ? args : NULL;
	at = at ? at + strspn(at, "| ") : NULL;
	*ret_n = at ? strcspn(at, " ") : 0;
	return at;
}

bool ctl_has_alternative(const struct ctl_command *command, const char *word)
{
	size_t n;

	for (const char *p = NULL; (p = next_alternative(command->args, p, &n));)
		if (n == strlen(word) && memcmp(p, word, n) == 0)
			return true;
	return false;
}

static void put_alternatives(const char *args)
{
	size_t n;

	for (const char *p = NULL; (p = next_alternative(args, p, &n));)
		printf("%.*s\n", (int)n, p);
}

/* For the completions of shells. Words without a dash are commands, or arguments of this one. */
static void put_words(const struct ctl_command *commands, const struct ctl_command *command)
{
	for (const struct ctl_command *c = commands; !command && c->name; c++)
		printf("%s\t%s\n", c->name, c->help);
	if (command) {
		put_alternatives(command->args);
		option_put_words(stdout, command->name, ALL);
	}
	option_put_words(stdout, ALL, NULL);
}

const struct ctl_command *ctl_find_command(const struct ctl_command *commands, const char *name)
{
	for (; commands->name; commands++)
		if (strcmp(name, commands->name) == 0)
			return commands;
	return NULL;
}

void ctl_put_help(const struct ctl_command *commands, const struct ctl_command *command)
{
	if (command)
		put_command_help(command);
	else
		put_help(commands);
}

void ctl_put_version(void)
{
	printf("cartonctl %s\n", CARTON_VERSION);
}

/* The first that is no option. */
static const struct ctl_command *command_of(const struct ctl_command *commands, char **words)
{
	while (*words && **words == '-')
		words++;
	return *words ? ctl_find_command(commands, *words) : NULL;
}

static _Noreturn void print_and_exit(char **argv, const struct ctl_command *commands,
				     const struct option_values *v)
{
	const struct ctl_command *command = command_of(commands, argv + 1);

	if (v->version)
		ctl_put_version();
	else if (v->complete)
		put_words(commands, command);
	else
		ctl_put_help(commands, command);
	exit(ctl_flush(EXIT_GOOD));
}

/* ---- parsing ---- */

/* What getopt_long() needs. An option is OPTION_BASE + its place in the table, or its letter. */
#define OPTION_BASE 256

struct getopt_table {
	struct option options[OPTION_MAX];
	char names[OPTION_MAX][OPTION_NAME];
	char letters[OPTION_MAX];
	unsigned n;
};

static void build(struct getopt_table *t)
{
	size_t n_letters = 0;

	for (const struct option_spec *s = option_table; s->name; s++) {
		struct option *o = &t->options[t->n];
		const char *name = t->names[t->n];

		if (strcmp(s->takers, "cartonfs") == 0)
			continue;
		if (s->letter)
			t->letters[n_letters++] = s->letter;
		if (s->name[0] == '-' && s->name[1] != '-')
			continue;
		option_name(s, ALL, t->names[t->n]);
		*o = (struct option){ name + strlen("--"),
				      s->kind == OPTION_FLAG ? no_argument :
				      s->unsaid		     ? optional_argument :
							       required_argument,
				      NULL, OPTION_BASE + (int)(s - option_table) };
		t->n++;
	}
}

static const struct option_spec *find_spec(int option)
{
	const struct option_spec *s = option_table;

	if (option >= OPTION_BASE)
		return &option_table[option - OPTION_BASE];
	while (s->letter != option || strcmp(s->takers, "cartonfs") == 0)
		s++;
	return s;
}

/* Says why getopt_long() has refused the option before argv[optind]. */
static int bad_option(char *const *argv, const struct option *options,
		      const struct ctl_command *command)
{
	const char *word = argv[optind - 1];
	size_t n = strcspn(word, "="); /* the name only: the value may be a URL with a password */
	const struct option_spec *near = command ? option_near(word, n, command->name) : NULL;
	char name[OPTION_NAME];

	for (; options->name; options++)
		if (optopt == options->val && options->has_arg == required_argument)
			return ctl_usage("option '--%s' requires an argument", options->name);
		else if (optopt == options->val && strncmp(word, "--", 2) == 0)
			return ctl_usage("option '--%s' doesn't allow an argument", options->name);
	if (optopt)
		return ctl_usage("invalid option -- '%c'", optopt);
	near = near ? near : option_near(word, n, ALL);
	if (near)
		option_name(near, ALL, name);
	return ctl_usage("unrecognized option '%.*s'%s%s%s", (int)n, word,
			 near ? "; did you mean " : "", near ? name : "", near ? "?" : "");
}

static int set(const struct option_spec *s, struct args *a)
{
	char name[OPTION_NAME], expected[OPTION_EXPECTED];
	int r = option_set(s, &a->values, optarg);

	option_name(s, ALL, name);
	if (r == -EINVAL)
		return ctl_usage("%s=%s: expected %s", name, optarg ? ctl_shown(optarg) : "",
				 option_expected(s, expected));
	if (r < 0)
		return ctl_failed(name, r);
	a->given[s - option_table] = true;
	if (optarg)
		privacy_hide(optarg); /* option_set() has copied it */
	return EXIT_GOOD;
}

int ctl_parse(int argc, char **argv, const struct ctl_command *commands, struct args *a)
{
	struct getopt_table t = { .n = 0 };
	const struct option_values *v = &a->values;
	const struct ctl_command *command = command_of(commands, argv + 1);
	int option, status;

	ctl_help_is_of(command ? command->name : NULL);
	build(&t);
	opterr = 0; /* it would print the option as it is */
	while ((option = getopt_long(argc, argv, t.letters, t.options, NULL)) >= 0) {
		status = option == '?' ? bad_option(argv, t.options, command) :
					 set(find_spec(option), a);
		if (status != EXIT_GOOD)
			return status;
		if (v->help || v->version || v->complete)
			print_and_exit(argv, commands, v);
	}
	return EXIT_GOOD;
}

int ctl_check_options(const struct ctl_command *command, const struct args *a)
{
	char name[OPTION_NAME];

	for (const struct option_spec *s = option_table; s->name; s++)
		if (a->given[s - option_table] && !option_is_for(s, ALL) &&
		    !option_is_for(s, command->name)) {
			option_name(s, ALL, name);
			return ctl_usage("%s has no option %s", command->name, name);
		}
	return EXIT_GOOD;
}
