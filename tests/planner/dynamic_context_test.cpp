#include "planner/dynamic_context.hpp"

#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner::dynamic_context_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// "tokens/ranks" of each document, documents of a rank behind each other, then ranks, then groups.
std::string text_of(const std::vector<DocumentGroup>& groups) {
    std::string text;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        if (g > 0) text += " | ";
        for (std::size_t rank = 0; rank < groups[g].tokens.size(); ++rank) {
            if (rank > 0) text += ", ";
            for (std::size_t i = 0; i < groups[g].tokens[rank].size(); ++i)
                text += fmt::format("{}{}/{}", i > 0 ? " " : "", groups[g].tokens[rank][i], groups[g].ranks[rank][i]);
        }
    }
    return text;
}

// What BalancedCPScheduler.get_groups_and_subsamples of hybrid_cp_schedule.py at d98e8a64 said; of 1,025 batches drawn at random over 4, 8
// and 16 ranks none differed.
TEST(DynamicContext, FormsGroupsAsMegatronDoes) {
    EXPECT_EQ(text_of(document_groups({8192, 4096, 4096, 2048, 1024, 1024, 512, 512}, 2048, 8)),
              "8192/4, 8192/4, 8192/4, 8192/4, 4096/2, 4096/2, 4096/2, 4096/2 | "
              "2048/2, 2048/2, 1024/2, 1024/2, 1024/2, 1024/2, 512/1, 512/1");
    EXPECT_EQ(text_of(document_groups({800, 900, 16384, 1000}, 4096, 8)),
              "16384/4, 16384/4, 16384/4, 16384/4, 1000/2, 1000/2, 900/1, 800/1");
    std::vector<std::int64_t> drawn;
    for (std::int64_t i = 0, x = 7; i < 30; ++i) {
        x = (x * 1103515245 + 12345) % (std::int64_t{1} << 31);
        drawn.push_back(1 + (x >> 8) % 8192);
    }
    EXPECT_EQ(text_of(document_groups(drawn, 2048, 8)),
              "7892/4 6128/4 5201/4 5009/4 4758/4, 7892/4 6128/4 5201/4 5009/4 4758/4, 7892/4 6128/4 5201/4 5009/4 4758/4, "
              "7892/4 6128/4 5201/4 5009/4 4758/4, 7266/4 6672/4 5973/4 4887/4 4710/4, 7266/4 6672/4 5973/4 4887/4 4710/4, "
              "7266/4 6672/4 5973/4 4887/4 4710/4, 7266/4 6672/4 5973/4 4887/4 4710/4 | "
              "3817/2 2715/2, 3817/2 2715/2, 3731/2 3158/2, 3731/2 3158/2, 3664/2 3369/2, 3664/2 3369/2, 3531/2 3485/2, 3531/2 3485/2 | "
              "1750/1, 1738/1, 1413/1, 1070/1, 822/1, 761/1, 681/1, 445/1 270/1 102/1 | "
              "4375/4, 4375/4, 4375/4, 4375/4, 2420/4, 2420/4, 2420/4, 2420/4");
}

TEST(DynamicContext, GivesADocumentAPowerOfTwoOfRanks) {
    EXPECT_EQ(ranks_of_document(1, 4096), 1);
    EXPECT_EQ(ranks_of_document(4096, 4096), 1);
    EXPECT_EQ(ranks_of_document(4097, 4096), 2);
    EXPECT_EQ(ranks_of_document(5 * 4096, 4096), 8);
}

TEST(DynamicContext, DrawsAStepsDocumentsFromTheirHistogram) {
    BatchSpec batch{.global_batch = 4, .sequence = 1000, .lengths = {{100, 500, 2500}, {5.0, 3.0, 0.4}}};
    // 3000 tokens of the histogram; one of 2500 is two sequences and a rest of 500.
    const std::vector<std::int64_t> documents = documents_of_step(batch);
    EXPECT_NEAR(static_cast<double>(std::accumulate(documents.begin(), documents.end(), std::int64_t{0})), 4000, 500);
    EXPECT_EQ(documents.front(), 1000);
    EXPECT_EQ(documents.back(), 100);
    batch.global_batch = 1 << 20;
    EXPECT_THROW((void)documents_of_step(batch), MissingFactError);
}

class DynamicContextJob : public ::testing::Test {
protected:
    Workload work;
    LayoutRequest request;

    DynamicContextJob() {
        work.model = formats::load_model("llama3-8b").model;
        work.cluster = load_cluster("dgx-h100");
        work.memory_limit = work.cluster.memory_bytes;
        work.world = 16;
        work.batch = {.global_batch = 64, .sequence = 8192, .lengths = {{8192}, {1.0}}};
        request.engine = Engine::megatron;
        request.tp = 2;
        request.sequence_parallel = true;
    }
    [[nodiscard]] simulator::Prediction predict(std::int64_t most) const {
        return predict_dynamic_context(work, make_layout(request, work), most);
    }
};

TEST_F(DynamicContextJob, OfEqualDocumentsIsThatOfOneContextSize) {
    for (const std::int64_t cp : {1, 2, 4}) {
        Workload fixed = work;
        fixed.batch.lengths = {};
        request.cp = cp;
        simulator::CostModel model(fixed);
        const simulator::Prediction plain = model.predict_exactly(make_layout(request, fixed));
        request.cp = 1;
        const simulator::Prediction found = predict(8192 / cp);
        EXPECT_NEAR(found.time.iteration_seconds / plain.time.iteration_seconds, 1, 0.01) << cp;
        EXPECT_NEAR(found.time.mfu / plain.time.mfu, 1, 0.01) << cp;
        double compute = 0;
        for (const simulator::ModuleWork& module : found.time.modules.works) compute += module.seconds;
        EXPECT_NEAR(compute / found.time.compute_seconds, 1, 1e-9) << cp;
        EXPECT_NEAR(found.time.tokens_per_second_per_gpu / plain.time.tokens_per_second_per_gpu, 1, 0.01) << cp;
        EXPECT_NEAR(static_cast<double>(found.memory.deciding_bytes()) / static_cast<double>(plain.memory.deciding_bytes()), 1, 0.01) << cp;
    }
}

TEST_F(DynamicContextJob, WaitsForTheSlowestRankAndHoldsTheLongestDocument) {
    const simulator::Prediction equal = predict(2048);
    work.batch.lengths = {{512, 8192}, {64.0, 4.0}};  // as many tokens of both
    const simulator::Prediction uneven = predict(2048);
    EXPECT_GT(uneven.time.iteration_seconds, equal.time.iteration_seconds) << "groups are balanced by the square of lengths";
    EXPECT_EQ(uneven.memory.deciding_bytes(), equal.memory.deciding_bytes()) << "of 2,048 tokens a rank";
    work.batch.lengths = {{512}, {1.0}};
    EXPECT_LT(predict(2048).memory.deciding_bytes(), equal.memory.deciding_bytes());
}

TEST_F(DynamicContextJob, RefusesDocumentsThatHaveNoPlace) {
    try {
        (void)predict(512);
        ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("a document of 8,192 tokens needs 16 ranks, and dp·cp has 8"));
    }
    work.world = 2;
    try {
        (void)predict(8192);
        ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("needs an even number of ranks of dp·cp, and there are 1"));
    }
}

}  // namespace
}  // namespace mgplan::planner::dynamic_context_test
