// Replays Megatron-LM's own answers (README.md here) through the mgplan command.

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::cli::golden_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// What became of a topic's cases.
struct Tally {
    int agreed = 0;
    int refused = 0;
    int skipped = 0;
};

Json cases_of(const std::string& topic) {
    std::ifstream file(tests::data_folder() + "/golden/data/" + topic + ".dev.json");
    return Json::parse(file).at("cases");
}

std::string text(std::int64_t value) {
    return std::to_string(value);
}

bool is_set(const Json& test, const char* key) {
    if (!test.contains(key) || test.at(key).is_null()) return false;
    return test.at(key).is_boolean() ? test.at(key).get<bool>() : true;
}

void add(Words& words, const char* option, const Json& value) {
    words.emplace_back(option);
    words.push_back(value.is_string() ? value.get<std::string>() : text(value.get<std::int64_t>()));
}

/// Runs the command; its JSON, or null after counting a refusal that was expected.
Json ask(Words words, bool bad, Tally& tally) {
    words.insert(words.end(), {"--format", "json"});
    std::ostringstream out;
    std::ostringstream err;
    Console console{out, err};
    const int code = run_mgplan(words, console);
    if (bad) {
        EXPECT_EQ(code, kBadInput);
        EXPECT_FALSE(err.str().empty());
        EXPECT_TRUE(out.str().empty());
        ++tally.refused;
        return nullptr;
    }
    EXPECT_EQ(code, kDone) << err.str();
    ++tally.agreed;
    return Json::parse(out.str(), nullptr, false);
}

// ---- rank groups ----------------------------------------------------------------------------------------------------

bool groups_expressible(const Json& test, bool bad) {
    if (test.at("kind") != "initialize_model_parallel" || is_set(test, "vpp")) return false;
    for (const char* other : {"hierarchical_cp_sizes", "hybrid_context_parallel", "rank_offset"}) {
        if (is_set(test, other) && test.at(other) != 0) return false;
    }
    const Words axes = split(test.at("order").get<std::string>(), '-');
    const bool tp_named = std::find(axes.begin(), axes.end(), "tp") != axes.end();
    if (bad && !tp_named) return false;                                                   // substring and case tests of that commit
    return bad || std::set<std::string>(axes.begin(), axes.end()).size() == axes.size();  // an axis named twice goes unnoticed there
}

TEST(Golden, RankGroupsAreThoseOfMegatron) {
    Tally tally;
    for (const Json& test : cases_of("rank_groups")) {
        SCOPED_TRACE(test.at("id").get<std::string>());
        const bool bad = test.contains("expect_error");
        if (!groups_expressible(test, bad)) {
            ++tally.skipped;
            continue;
        }
        Words words{"groups"};
        for (const auto& [option, key] : {std::pair{"--world", "world"},
                                          {"--tp", "tp"},
                                          {"--cp", "cp"},
                                          {"--pp", "pp"},
                                          {"--ep", "ep"},
                                          {"--order", "order"},
                                          {"--etp", "etp"},
                                          {"--distributed-optimizer-instances", "num_distributed_optimizer_instances"}}) {
            if (!test.at(key).is_null()) add(words, option, test.at(key));
        }
        const Json got = ask(words, bad, tally);
        if (bad) continue;
        EXPECT_EQ(got.at("world"), test.at("world"));
        EXPECT_EQ(got.at("dp"), test.at("dp"));
        EXPECT_EQ(got.at("edp"), test.at("edp"));
        std::size_t compared = 0;
        for (const auto& [name, groups] : test.at("groups").items()) {
            // Unsorted unions of other groups, which nothing communicates over in mgplan.
            if (name == "intra_dist_opt_instance") continue;
            ASSERT_TRUE(got.at("groups").contains(name)) << name;
            EXPECT_EQ(got.at("groups").at(name), groups) << name;
            ++compared;
        }
        EXPECT_EQ(compared, got.at("groups").size());
    }
    EXPECT_EQ(tally.agreed, 68);
    EXPECT_EQ(tally.refused, 20);
    EXPECT_EQ(tally.skipped, 35);
}

// ---- schedules ------------------------------------------------------------------------------------------------------

/// What the real interleaved schedule checks and Megatron-LM's planning helpers do not.
bool legal_group(std::int64_t pp, std::int64_t microbatches, std::int64_t group) {
    const std::int64_t rest = group > 0 ? microbatches % group : 0;
    return pp <= group && group <= microbatches && (rest == 0 || rest >= pp);
}

bool check_table(const Json& test, Tally& tally) {
    const std::int64_t chunks = test.at("num_model_chunks");
    if (chunks < 2) return false;
    const std::int64_t microbatches = test.at("num_microbatches");
    const std::int64_t group = test.at("group");
    // The table does not depend on the pipeline; two ranks allow the most group sizes.
    const bool bad = !legal_group(2, microbatches, group);
    const Json got = ask({"schedule", "--pp", "2", "--vpp", text(chunks), "--microbatches", text(microbatches), "--group-size", text(group),
                          "--kind", "interleaved"},
                         bad, tally);
    if (bad) return true;
    Json want = Json::array();
    for (std::size_t i = 0; i < test.at("microbatch_id").size(); ++i) {
        want.push_back({test.at("microbatch_id")[i], test.at("model_chunk_id")[i]});
    }
    EXPECT_EQ(got.at("table"), want);
    return true;
}

bool check_choice(const Json& test, Tally& tally) {
    const std::int64_t pp = test.at("pp");
    const bool chunks = is_set(test, "vpp");
    if (chunks && (pp == 1 || test.at("vpp") == 1)) return false;
    Words words{"schedule", "--pp", text(pp), "--microbatches", text(2 * pp), "--kind", "auto"};
    if (chunks) add(words, "--vpp", test.at("vpp"));
    const Json got = ask(words, false, tally);
    const std::string function = test.at("function");
    EXPECT_EQ(got.at("kind"), function.ends_with("with_interleaving") ? "interleaved"
                              : function.ends_with("no_pipelining")   ? "none"
                                                                      : "1f1b");
    return true;
}

void compare_ranks(const Json& got, const Json& test) {
    ASSERT_EQ(got.at("ranks").size(), test.at("ranks").size());
    for (const Json& want : test.at("ranks")) {
        const Json& rank = got.at("ranks").at(want.at("rank").get<std::size_t>());
        EXPECT_EQ(rank.at("rank"), want.at("rank"));
        for (const char* key : {"order", "microbatch", "warmup", "peak_live"}) {
            if (want.contains(key)) {
                EXPECT_EQ(rank.at(key), want.at(key)) << key;
            }
        }
        if (!want.contains("microbatch")) continue;
        // The forwards of any rank, in sequence, are the table.
        Json table = Json::array();
        for (std::size_t i = 0; i < want.at("order").size(); ++i) {
            const int order = want.at("order")[i];
            if (order > 0) table.push_back({want.at("microbatch")[i], order - 1});
        }
        EXPECT_EQ(got.at("table"), table);
    }
}

bool check_ranks(const Json& test, Tally& tally) {
    const std::string kind = test.at("kind");
    const std::int64_t pp = test.at("pp");
    const std::int64_t microbatches = test.at("num_microbatches");
    const std::int64_t vpp = is_set(test, "vpp") ? test.at("vpp").get<std::int64_t>() : 0;
    const std::int64_t group = is_set(test, "group") ? test.at("group").get<std::int64_t>() : pp;
    bool bad = test.contains("expect_error");
    std::string name;
    if (kind == "rank_plan") {
        if (is_set(test, "overlap_moe_ep") || bad) return false;
        name = vpp > 0 && pp > 1 ? "interleaved" : pp > 1 ? "1f1b" : "none";
        bad = name == "interleaved" && !legal_group(pp, microbatches, group);
    } else {
        // Refused for how messages overlap; mgplan's schedule has no such option.
        if (bad && (is_set(test, "overlap_p2p_comm") || is_set(test, "overlap_p2p_comm_warmup_flush"))) return false;
        name = kind == "trace_interleaved" ? "interleaved" : kind == "trace_1f1b" ? "1f1b" : "none";
    }
    if (vpp == 1 || (name == "none" && vpp > 1)) return false;
    Words words{"schedule", "--pp", text(pp), "--microbatches", text(microbatches), "--kind", name};
    if (name == "interleaved") {
        words.insert(words.end(), {"--vpp", text(vpp)});
        if (group != pp) words.insert(words.end(), {"--group-size", text(group)});
    }
    if (is_set(test, "forward_only")) words.emplace_back("--forward-only");
    const Json got = ask(words, bad, tally);
    if (bad) return true;
    EXPECT_EQ(got.at("kind"), name);
    EXPECT_EQ(got.at("pp"), pp);
    EXPECT_EQ(got.at("microbatches"), microbatches);
    if (name == "interleaved") {
        EXPECT_EQ(got.at("vpp"), vpp);
        EXPECT_EQ(got.at("group_size"), group);
    }
    compare_ranks(got, test);
    return true;
}

TEST(Golden, SchedulesRunWhatMegatronRuns) {
    Tally tally;
    for (const Json& test : cases_of("schedules")) {
        SCOPED_TRACE(test.at("id").get<std::string>());
        const std::string kind = test.at("kind");
        const bool asked = kind == "schedule_table"    ? check_table(test, tally)
                           : kind == "select_schedule" ? check_choice(test, tally)
                                                       : check_ranks(test, tally);
        if (!asked) ++tally.skipped;
    }
    EXPECT_EQ(tally.agreed, 142);
    EXPECT_EQ(tally.refused, 56);
    EXPECT_EQ(tally.skipped, 11);
}

// ---- layers to stages -----------------------------------------------------------------------------------------------

char letter_of(const std::string& layer) {
    return layer == "embedding" ? 'E' : layer == "decoder" ? 't' : layer == "mtp" ? 'm' : layer == "loss" ? 'L' : '?';
}

/// Megatron-LM also takes a list of lists; the command line takes the string form alone.
std::string layout_text(const Json& layout) {
    if (layout.is_string()) return layout;
    std::string text;
    for (const Json& stage : layout) {
        if (&stage != &layout.front()) text += '|';
        for (const Json& layer : stage) text += letter_of(layer);
    }
    return text;
}

/// ["embedding","decoder"] -> "Et", for each chunk of each rank.
Json letters(const Json& stages) {
    Json all = Json::array();
    for (const Json& rank : stages) {
        Json chunks = Json::array();
        for (const Json& chunk : rank) {
            std::string stage;
            for (const Json& layer : chunk) stage += letter_of(layer);
            chunks.push_back(stage);
        }
        all.push_back(chunks);
    }
    return all;
}

Json decoders_in(const Json& stages) {
    Json all = Json::array();
    for (const Json& rank : stages) {
        Json counts = Json::array();
        for (const Json& chunk : rank) {
            const std::string stage = chunk;
            counts.push_back(std::count(stage.begin(), stage.end(), 't'));
        }
        all.push_back(counts);
    }
    return all;
}

bool split_expressible(const Json& test, bool bad) {
    // Two uneven stages with chunks divide by zero there: no rule.
    if (bad && test.at("expect_error").at("stage") == "get_transformer_layer_offset") return false;
    const auto stage_layers = [&](const char* key) { return is_set(test, key) ? test.at(key).get<std::int64_t>() : 0; };
    // A negative number of layers is built there.
    if (!bad &&
        stage_layers("num_layers_in_first_pipeline_stage") + stage_layers("num_layers_in_last_pipeline_stage") > test.at("num_layers"))
        return false;
    // Every layer is built twice there.
    return !(test.at("pp") == 1 && is_set(test, "vpp") && test.at("vpp") > 1);
}

TEST(Golden, LayersAreSplitAsInMegatron) {
    Tally tally;
    for (const Json& test : cases_of("layer_split")) {
        if (test.at("kind") == "parse") continue;
        SCOPED_TRACE(test.at("id").get<std::string>());
        const bool bad = test.contains("expect_error");
        if (!split_expressible(test, bad)) {
            ++tally.skipped;
            continue;
        }
        Words words{"split"};
        for (const auto& [option, key] : {std::pair{"--layers", "num_layers"},
                                          {"--pp", "pp"},
                                          {"--vpp", "vpp"},
                                          {"--mtp-layers", "mtp_num_layers"},
                                          {"--first-stage-layers", "num_layers_in_first_pipeline_stage"},
                                          {"--last-stage-layers", "num_layers_in_last_pipeline_stage"}}) {
            if (!test.at(key).is_null()) add(words, option, test.at(key));
        }
        if (!test.at("layout").is_null()) words.insert(words.end(), {"--pipeline-layout", layout_text(test.at("layout"))});
        if (is_set(test, "account_for_embedding_in_pipeline_split")) words.emplace_back("--account-for-embedding");
        if (is_set(test, "account_for_loss_in_pipeline_split")) words.emplace_back("--account-for-loss");
        const Json got = ask(words, bad, tally);
        if (bad) continue;
        EXPECT_EQ(got.at("num_layers"), test.at("num_layers_to_build"));
        EXPECT_EQ(got.at("offset"), test.at("layer_offset"));
        const Json stages = letters(got.at("stages"));
        if (test.contains("stage_layers")) {
            EXPECT_EQ(stages, test.at("stage_layers"));
        } else {
            EXPECT_EQ(decoders_in(stages), test.at("num_layers_to_build"));
            EXPECT_TRUE(stages.front().front().get<std::string>().starts_with('E'));
            EXPECT_TRUE(stages.back().back().get<std::string>().ends_with('L'));
        }
    }
    EXPECT_EQ(tally.agreed, 92);
    EXPECT_EQ(tally.refused, 29);
    EXPECT_EQ(tally.skipped, 3);
}

TEST(Golden, LayoutStringsExpandAsInMegatron) {
    int agreed = 0;
    for (const Json& test : cases_of("layer_split")) {
        if (test.at("kind") != "parse") continue;
        SCOPED_TRACE(test.at("layout").get<std::string>());
        const std::string layout = test.at("layout");
        if (test.contains("expect_error")) {
            EXPECT_THROW((void)parse_pipeline_layout(layout), ConfigError);
        } else {
            const auto stages = parse_pipeline_layout(layout);
            EXPECT_EQ(Json(stages), test.at("stages"));
            EXPECT_EQ(parse_pipeline_layout(compact_pipeline_layout(stages)), stages);
        }
        ++agreed;
    }
    EXPECT_EQ(agreed, 18);
}

}  // namespace
}  // namespace mgplan::cli::golden_test
