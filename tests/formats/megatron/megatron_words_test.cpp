// Advice of layout rules in Megatron-LM's flags.
#include "formats/megatron/megatron_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/layout/stage_split.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::megatron_words_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(MegatronWords, ReplaceOptionsThatAreWholeWords) {
    EXPECT_EQ(in_megatron_words("drop --no-overlap p2p or use pp > 2"), "drop --no-overlap-p2p-communication or use pp > 2");
    EXPECT_EQ(in_megatron_words("use a smaller --micro-batch, --seq or --group-size"),
              "use a smaller --micro-batch-size, --seq-length or --microbatch-group-size-per-virtual-pipeline-stage");
    EXPECT_EQ(in_megatron_words("--micro-batch-size and --seq-length"), "--micro-batch-size and --seq-length");
    EXPECT_EQ(in_megatron_words("another --ep"), "another --expert-model-parallel-size");
    EXPECT_EQ(in_megatron_words(""), "");
}

TEST(MegatronWords, PutSettingsInPlaceOfWholeFlags) {
    const SettingOfFlag setting_of = [](const std::string& flag) { return flag == "--num-layers" ? "model.num_layers" : flag; };
    EXPECT_EQ(in_settings("--num-layers = 0; --num-layers-other, not num-layers", setting_of),
              "model.num_layers = 0; --num-layers-other, not num-layers");
    EXPECT_EQ(in_settings("", setting_of), "");
    try {
        static_cast<void>(read_settings_as_arguments({"--num-layers", "x"}, "file", {}, setting_of));
        FAIL();
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.problems(), testing::Contains(HasSubstr("file: model.num_layers = 'x' is")));
    }
}

TEST(MegatronWords, NameTheFlagsOfUnevenStages) {
    StageSplitRequest request;
    request.layers = 46;
    request.pp = 4;
    try {
        (void)make_stage_split(request);
        FAIL() << "46 layers over 4 stages";
    } catch (const ConfigError& error) {
        EXPECT_THAT(in_megatron_words(error.problems().front()),
                    AllOf(HasSubstr("--account-for-embedding-in-pipeline-split"), HasSubstr("--decoder-last-pipeline-num-layers"),
                          HasSubstr("--pipeline-model-parallel-layout"), Not(HasSubstr("layout string"))));
    }
}

}  // namespace
}  // namespace mgplan::formats::megatron_words_test
