#!/usr/bin/env python3
"""Values of conditions that explain made-up runs."""

import unittest

import adverse


class Adverse(unittest.TestCase):
    network, host, routing = adverse.CONDITIONS

    def test_finds_the_value_with_which_a_prediction_equals_the_measurement(self):
        self.assertAlmostEqual(adverse.value_that_explains(lambda share: 5 + 2 / share, self.network, 9), 0.5, places=1)
        self.assertAlmostEqual(adverse.value_that_explains(lambda factor: 5 + 2 * factor, self.host, 9), 2, places=1)

    def test_ends_where_no_value_explains_the_run(self):
        self.assertEqual(adverse.value_that_explains(lambda share: 5 + 2 / share, self.network, 100), self.network.worst)
        self.assertEqual(adverse.value_that_explains(lambda factor: 5 + 2 * factor, self.host, 1), self.host.best)

    def test_quantiles_are_between_values(self):
        self.assertEqual(adverse.quantile([3, 1, 2], 0.5), 2)
        self.assertAlmostEqual(adverse.quantile([0, 10], 0.2), 2)

    def test_the_page_states_the_conditions_in_use(self):
        page = adverse.PAGE.read_text(encoding="utf-8")
        self.assertEqual(adverse.with_table(page, adverse.table(adverse.json.loads(adverse.FILE.read_text(encoding="utf-8")))), page)

    def test_routing_is_of_runs_whose_router_chose(self):
        self.assertTrue(self.routing.counts({"routing": "natural"}) and not self.network.counts({"routing": "natural"}))
        self.assertTrue(self.network.counts({"routing": "forced-balance"}) and not self.routing.counts({"routing": None}))


if __name__ == "__main__":
    unittest.main()
