// Every preset under the policies of every precision: each finds what it edits, or leaves it alone.

#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "tests/simulator/round_numbers.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::simulator::every_preset_test {
namespace {

TEST(EveryPreset, IsPredictedForMegatronInEveryPrecision) {
    int predicted = 0;
    for (const std::string& name : tests::sanitized_share(formats::preset_names(), 3)) {
        Workload workload = workload_of(formats::load_model(name).model, 8, 8, 1024);
        workload.cluster = load_cluster("gb200-nvl72");
        for (const auto& [precision, tp] :
             {std::pair{Precision::bf16, 1}, {Precision::fp8, 1}, {Precision::fp8, 2}, {Precision::nvfp4, 2}}) {
            workload.training.precision = precision;
            LayoutRequest request;
            request.engine = Engine::megatron;
            request.tp = tp;
            request.sequence_parallel = tp > 1;
            try {
                const Layout layout = planner::make_layout(request, workload);
                EXPECT_GT(CostModel(workload).estimate(layout).time.iteration_seconds, 0) << name;
                ++predicted;
            } catch (const ConfigError&) {
                // A rule of the model: heads that tp does not divide, and the like.
            }
        }
    }
    EXPECT_GT(predicted, static_cast<int>(3 * tests::sanitized_share(formats::preset_names(), 3).size()));
}

}  // namespace
}  // namespace mgplan::simulator::every_preset_test
