// The line of an answer on its own accuracy, by the family of the model.

#include "reports/blind_accuracy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"

namespace mgplan::reports::blind_accuracy_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string said_of(const std::string& model) {
    Workload work;
    work.model = formats::load_model(model).model;
    work.cluster = load_cluster("dgx-h100");
    return accuracy_text(work, Engine::megatron);
}

TEST(BlindAccuracy, IsOfTheModelsFamily) {
    EXPECT_THAT(said_of("llama3-8b"), ContainsRegex("on [0-9]+ dense runs on H100 that"));
    EXPECT_THAT(said_of("mixtral-8x7b"), ContainsRegex("on [0-9]+ MoE runs that")) << "too few on this GPU: those on all";
    EXPECT_THAT(said_of("nemotron-h-8b"), ContainsRegex("on [0-9]+ hybrid runs that"));
    EXPECT_THAT(said_of("deepseek-v4-flash"), HasSubstr("accuracy: no blind runs of models of DeepSeek-V4's kind; "));
    for (const char* model : {"llama3-8b", "mixtral-8x7b", "nemotron-h-8b", "deepseek-v4-flash"}) EXPECT_LE(said_of(model).size(), 81U);
}

}  // namespace
}  // namespace mgplan::reports::blind_accuracy_test
