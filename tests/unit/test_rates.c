/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of servers: one for each, and a bound on how many there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/util.h"
#include "content/rates.h"

static void test_same_server(void **state)
{
	struct rates r;
	const struct server_rates *a, *b;

	(void)state;
	rates_init(&r);
	a = rates_of(&r, "https://a.example/m/1?x=2");
	assert_ptr_equal(rates_of(&r, "https://a.example/other"), a);
	assert_ptr_equal(rates_of(&r, "https://user:word@a.example"), a);
	b = rates_of(&r, "https://a.example:8443/m/1");
	assert_ptr_not_equal(a, b);
	assert_ptr_not_equal(rates_of(&r, "http://a.example/m/1"), a);
	assert_ptr_not_equal(rates_of(&r, "https://b.example/https://a.example/"), a);
	assert_ptr_equal(rates_of(&r, NULL), &r.others);
	assert_int_equal(r.n, 4);
	rates_finish(&r);
}

/* A file may name as many servers as it likes. */
static void test_too_many(void **state)
{
	struct rates r;
	char url[64];

	(void)state;
	rates_init(&r);
	for (int i = 0; i < RATES_MAX + 2; i++) {
		snprintf(url, sizeof(url), "https://%d.example/", i);
		assert_int_equal(rates_of(&r, url) == &r.others, i >= RATES_MAX);
	}
	assert_int_equal(r.n, RATES_MAX);
	/* those that are known stay so */
	assert_ptr_not_equal(rates_of(&r, "https://0.example/"), &r.others);
	rates_finish(&r);
}

/* Ten requests, one after the other: each answered after that time, then 16 MiB at that rate. */
static void measure(struct server_rates *s, uint64_t answer_us, uint64_t rate)
{
	uint64_t now = 1;

	for (int i = 0; i < 10; i++) {
		rates_began(s);
		rates_answered(s, answer_us);
		for (int k = 0; k <= 16; k++) {
			rates_came(s, MIB, now);
			now += MIB * 1000000 / rate;
		}
		rates_ended(s);
		now += answer_us;
	}
}

static void test_apart(void **state)
{
	struct rates r;
	struct server_rates *near, *far;

	(void)state;
	rates_init(&r);
	near = rates_of(&r, "http://near.example/");
	far = rates_of(&r, "http://far.example/");
	measure(near, 1000, 100 * MIB);
	assert_int_equal(far->rates + far->answer_us + far->connections, 0);
	measure(far, 200000, 1 * MIB);
	assert_int_equal(near->answer_us, 1000);
	assert_int_equal(far->answer_us, 200000);
	assert_in_range(near->rate, 90 * MIB, 110 * MIB);
	assert_in_range(far->rate, 9 * MIB / 10, 11 * MIB / 10);
	assert_int_equal(near->busy + far->busy, 0);
	assert_int_equal(far->connections, 1);
	rates_finish(&r);
}

/* A short time to an answer is forgotten, little by little, when none is as short. */
static void test_slower(void **state)
{
	struct server_rates s;

	(void)state;
	server_rates_init(&s);
	rates_answered(&s, 8000);
	for (int i = 0; i < 63; i++)
		rates_answered(&s, 100000);
	assert_int_equal(s.answer_us, 8000);
	rates_answered(&s, 100000);
	assert_int_equal(s.answer_us, 9000);
	rates_answered(&s, 500);
	assert_int_equal(s.answer_us, 500);
	server_rates_finish(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_server),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_slower),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
