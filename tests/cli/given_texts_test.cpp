// Programs that call a command hold a model, a cluster or a plan as text, and want the answer's plans as plans.
#include <nlohmann/json.hpp>

#include "plan/plan.hpp"
#include "plan/text/json_reader.hpp"
#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::given_texts_test {
namespace {

using ::testing::HasSubstr;

const std::string kModel =
    R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 512,
        "intermediate_size": 1024, "max_position_embeddings": 2048})";

struct Asked {
    int code;
    nlohmann::json out;
    std::string err;
    std::vector<Plan> plans;
};

Asked ask(const std::string& words, std::map<std::string, GivenText> texts) {
    std::ostringstream out, err;
    Asked asked;
    Console console{out, err};
    console.texts = std::move(texts);
    console.plans = [&](const Plan& plan) { asked.plans.push_back(plan); };
    asked.code = run_mgplan(split(words + " --format json", ' '), console);
    asked.err = err.str();
    if (asked.code == kDone) asked.out = nlohmann::json::parse(out.str());
    return asked;
}

TEST(GivenTexts, OfAModelAndAClusterPlanAsTheirFilesDo) {
    const TempFile model("given.json", kModel), cluster("cluster.json", say("clusters show dgx-h200 --format json").out);
    const Asked given = ask("plan --world 8 --top 3", {{"model", {"mine", kModel}}, {"cluster", {"ours", cluster.text()}}});
    ASSERT_EQ(given.code, kDone) << given.err;
    EXPECT_EQ(given.out["model"]["name"], "mine");
    const Asked read = ask("plan --world 8 --top 3 --model " + model.path() + " --cluster " + cluster.path(), {});
    ASSERT_EQ(read.code, kDone) << read.err;
    EXPECT_EQ(given.out["plans"], read.out["plans"]);
    EXPECT_EQ(given.out["cluster"], read.out["cluster"]);
}

TEST(GivenTexts, OfPlansAreTheAnswersPlans) {
    const Asked ranked = ask("plan --world 8 --top 3", {{"model", {"mine", kModel}}});
    ASSERT_EQ(ranked.plans.size(), 3U) << ranked.err;
    for (std::size_t i = 0; i < 3; ++i) {
        const std::string text = plan_to_json(ranked.plans[i]).dump();
        const Asked again = ask("simulate", {{"PLAN", {"plan", text}}});
        ASSERT_EQ(again.code, kDone) << again.err;
        EXPECT_EQ(again.out["predicted"]["iteration_seconds"], ranked.out["plans"][i]["predicted"]["iteration_seconds"]);
        ASSERT_EQ(again.plans.size(), 1U);
        EXPECT_EQ(plan_to_json(again.plans.front()).dump(), text);
    }
}

TEST(GivenTexts, OfTwoPlansStandInTheirOrder) {
    const Asked ranked = ask("plan --world 8 --top 2", {{"model", {"mine", kModel}}});
    ASSERT_EQ(ranked.plans.size(), 2U) << ranked.err;
    const std::string first = plan_to_json(ranked.plans[0]).dump(), second = plan_to_json(ranked.plans[1]).dump();
    const TempFile file("given_texts_plan.json", first);
    const Asked both = ask("diff", {{"PLAN 1", {"one", first}}, {"PLAN 2", {"two", second}}});
    ASSERT_EQ(both.code, kDone) << both.err;
    const Asked mixed = ask("diff " + file.path(), {{"PLAN 2", {"two", second}}});
    EXPECT_EQ(mixed.out["fields"], both.out["fields"]);
    EXPECT_NE(ask("diff " + file.path(), {{"PLAN 1", {"two", second}}}).out["fields"], both.out["fields"]) << "the second one first";
    EXPECT_THAT(ask("diff", {{"PLAN 3rd", {"odd", "{}"}}}).err, HasSubstr("PLAN 3rd takes no text"));
}

TEST(GivenTexts, AreNamedInMessages) {
    const Asked odd = ask("plan --world 8", {{"model", {"mine", "{\"model_type\": \"llama\", \"hidden_size\": \"big\"}"}}});
    EXPECT_EQ(odd.code, kBadInput);
    EXPECT_THAT(odd.err, HasSubstr("--model: mine: hidden_size = \"big\" is not a whole number"));
    const Asked taken = ask("simulate --world 8 --model mine", {{"PLAN", {"my plan", "{}"}}});
    EXPECT_EQ(taken.code, kBadInput);
    EXPECT_THAT(ask("simulate", {{"PLAN", {"my plan", "{}"}}}).err, HasSubstr("my plan: this is no plan"));
}

}  // namespace
}  // namespace mgplan::cli::testing::given_texts_test
