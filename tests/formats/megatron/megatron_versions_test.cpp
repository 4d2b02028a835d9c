// Versions of Megatron-LM, and what becomes of flags that not all of them have. Sources: add_megatron_arguments of
// megatron/training/arguments.py in megatron-core 0.19.2, main at d98e8a64 and branch dev at d48bd6be.
#include "formats/megatron/megatron_versions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_flags.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "tests/formats/megatron/read_flags.hpp"

namespace mgplan::formats::megatron_versions_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using tests::megatron::kSmall, tests::megatron::read, tests::megatron::refusal;
using enum MegatronVersion;

TEST(MegatronVersions, HaveTheFlagsThatTheirParsersHave) {
    const auto have = [](std::string_view flag) { return versions_of_flag(flag)->have; };
    EXPECT_EQ(have("--offload-optimizer-states"), MegatronVersions{dev});
    EXPECT_EQ(have("--enable-mhc-connections"), MegatronVersions{v0_20});
    EXPECT_EQ(have("--mhc-sinkhorn-iterations"), (MegatronVersions{v0_20, dev}));
    EXPECT_EQ(have("--tensor-parallel-num-weight-shards"), (MegatronVersions{v0_19, v0_20}));
    EXPECT_EQ(have("--beta-fast"), MegatronVersions{});
    EXPECT_FALSE(versions_of_flag("--num-layers")) << "all versions";
    EXPECT_EQ(newest_of({v0_19, v0_20}).name, "0.20");
    EXPECT_EQ(newest_of({dev}).name, "dev");
}

TEST(MegatronVersions, AreNamedForFlagsThatAreKnown) {
    for (const std::string& flag : flag_names()) (void)versions_of_flag(flag);
    for (const char* flag : {"beta-fast", "offload-optimizer-states", "moe-use-legacy-grouped-gemm", "mhc-recompute-layer-num"})
        EXPECT_TRUE(find_flag(flag)) << flag;
}

TEST(MegatronVersions, OfACommandWithoutOneAreToldByItsFlags) {
    const auto open = [](const std::string& flags) { return read(kSmall + flags).flags.without_a_version; };
    EXPECT_THAT(open("--swiglu"), IsEmpty());
    EXPECT_THAT(open("--multi-latent-attention --beta-fast 32"), ElementsAre("--beta-fast (none of 0.19, 0.20, dev)"));
    EXPECT_THAT(open("--bf16 --use-distributed-optimizer --offload-optimizer-states"), IsEmpty()) << "dev has all";
    EXPECT_THAT(open("--bf16 --use-distributed-optimizer --offload-optimizer-states --override-ckpt-iteration 3"),
                ElementsAre("--offload-optimizer-states (dev)", "--override-ckpt-iteration (0.19, 0.20)"));
}

// gpt_layer_specs.py:572 of main; gpt_builders.py of dev builds these layers.
TEST(MegatronVersions, DifferInWhatTheyStopAt) {
    const std::string flags =
        kSmall +
        "--experimental-attention-variant gated_delta_net --linear-attention-freq 2 --normalization RMSNorm --mtp-num-layers 1 "
        "--position-embedding-type rope --bf16 --use-distributed-optimizer ";
    EXPECT_THAT(refusal(flags), testing::HasSubstr("--mtp-num-layers = 1 does not go with"));
    EXPECT_EQ(refusal(flags + "--offload-optimizer-states"), "accepted") << "dev alone has that flag";
}

}  // namespace
}  // namespace mgplan::formats::megatron_versions_test
