// `mgplan run` in fp8 with a scale for each block.

#include <string>

#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::run_blocks_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PlanOfBlocks {
public:
    PlanOfBlocks(const std::string& name, const std::string& options, const std::string& model = "tiny-llama") : file_(name) {
        const Said said = say("--model " + model + " --engine mgplan --global-batch 8 " + options + " --save-plan " + file_.path());
        EXPECT_EQ(said.code, kDone) << said.err;
    }
    [[nodiscard]] const std::string& path() const { return file_.path(); }

private:
    TempFile file_;
};

nlohmann::json run(const PlanOfBlocks& plan, const std::string& options) {
    const Said said = say("run " + plan.path() + " --steps 3 --format json" + options);
    EXPECT_EQ(said.code, kDone) << said.err;
    return nlohmann::json::parse(said.out);
}

TEST(RunCommandInBlocks, TrainsWithTheBytesThatWerePredicted) {
    const auto wide = run(PlanOfBlocks("blocks_bf16.json", "--world 4 --tp 2 --pp 2"), "");
    for (const std::string precision : {"fp8-blockwise", "mxfp8"}) {
        SCOPED_TRACE(precision);
        const std::string words = " --precision " + precision + (precision == "mxfp8" ? " --cluster dgx-b200" : "");
        const PlanOfBlocks plan("blocks.json", "--world 4 --tp 2 --pp 2" + words);
        const auto eager = run(plan, "");
        EXPECT_TRUE(eager["as_predicted"]);
        for (std::size_t step = 0; step < 3; ++step) {
            const double loss = eager["steps"][step]["loss"], other = wide["steps"][step]["loss"];
            EXPECT_NE(loss, other);
            EXPECT_NEAR(loss / other, 1, 0.01);
        }
        // Weights change from step to step, whoever replays what.
        for (const std::string options : {" --cuda-graphs layer", " --cuda-graphs full_iteration", " --memory arena"}) {
            const auto other = run(plan, options);
            EXPECT_TRUE(other["as_predicted"]) << options;
            for (std::size_t step = 0; step < 3; ++step) EXPECT_EQ(other["steps"][step]["loss"], eager["steps"][step]["loss"]) << options;
        }
        const Said verified = say("verify " + plan.path() + " --steps 1");
        EXPECT_EQ(verified.code, kDone) << verified.err;
        EXPECT_THAT(verified.err, Not(HasSubstr("differs from the prediction")));
        EXPECT_THAT(say("simulate --plan " + plan.path()).out, Not(HasSubstr("which run refuses")));
        const PlanOfBlocks mixture("blocks_mixture.json", "--world 4 --tp 1 --pp 2 --ep 2" + words, "tiny-moe");
        for (const std::string options : {"", " --memory arena", " --cuda-graphs attn,moe_router,moe_preprocess"})
            EXPECT_TRUE(run(mixture, options)["as_predicted"]) << options;
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::run_blocks_test
