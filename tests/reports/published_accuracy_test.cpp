// What an answer says of its own accuracy, by the kind of the model.

#include "reports/published_accuracy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"

namespace mgplan::reports::published_accuracy_test {
namespace {

using ::testing::HasSubstr;

std::string said_of(const std::string& model) {
    Workload work;
    work.model = formats::load_model(model).model;
    work.cluster = load_cluster("dgx-h100");
    return accuracy_text(work, Engine::megatron);
}

TEST(PublishedAccuracy, IsNotThatOfMixturesForModelsOfAnotherKind) {
    EXPECT_THAT(said_of("mixtral-8x7b"), HasSubstr("accuracy: MoE models on H100, 16 bits: "));
    EXPECT_THAT(said_of("nemotron-h-8b"), HasSubstr("accuracy: not known for hybrids on H100, 16 bits; "));
    EXPECT_THAT(said_of("deepseek-v4-flash"), HasSubstr("accuracy: not known for models of DeepSeek-V4's kind on H100, 16 bits; "));
}

}  // namespace
}  // namespace mgplan::reports::published_accuracy_test
