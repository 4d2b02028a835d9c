#include "plan/layout/layout_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/layout/layout.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

/// The sizes and where they go; longer names before those that they end with.
struct SizeWord {
    std::string_view name;
    void (*store)(LayoutInWords& request, std::int64_t size);
};
constexpr std::array<SizeWord, 8> kSizeWords{{
    {"vpp", [](LayoutInWords& r, std::int64_t size) { r.vpp = size; }},
    {"etp", [](LayoutInWords& r, std::int64_t size) { r.etp = size; }},
    {"mbs", [](LayoutInWords& r, std::int64_t size) { r.micro_batch = size; }},
    {"tp", [](LayoutInWords& r, std::int64_t size) { r.tp = size; }},
    {"cp", [](LayoutInWords& r, std::int64_t size) { r.cp = size; }},
    {"ep", [](LayoutInWords& r, std::int64_t size) { r.ep = size; }},
    {"pp", [](LayoutInWords& r, std::int64_t size) { r.pp = size; }},
    {"dp", [](LayoutInWords& r, std::int64_t size) { r.dp = size; }},
}};

/// "layernorm+moe_act": nothing where a word is none of the names.
template <class Enum>
std::optional<EnumSet<Enum>> parse_set(const std::string& words, std::optional<Enum> (*parse)(std::string_view)) {
    EnumSet<Enum> set;
    for (const std::string& word : split(words, '+')) {
        const std::optional<Enum> one = parse(word);
        if (!one) return std::nullopt;
        set.add(*one);
    }
    return set.empty() ? std::nullopt : std::optional(set);
}

std::optional<RecomputeModule> parse_module(std::string_view word) {
    if (const auto module = parse_recompute_module(word)) return module;
    for (const auto& [module, name] : kModulesInShort) {
        if (word == name) return module;
    }
    return std::nullopt;
}

/// The cp exchange as tables write it after the number of ranks.
struct ExchangeInCell {
    std::string_view text;
    CpCommType exchange;
};
constexpr std::array<ExchangeInCell, 3> kExchangesInCells{
    {{"ag", CpCommType::all_gather}, {"a2a", CpCommType::a2a}, {"a2a+p2p", CpCommType::a2a_p2p}}};

/// The schedules that Megatron-LM runs, by their names in tables.
std::optional<ScheduleKind> parse_schedule_kind(std::string_view word) {
    for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
        if (word == to_string(kind)) return kind;
    }
    return std::nullopt;
}

/// "tp-dp-pp": each of them an axis, none twice.
bool is_order(const std::string& word) {
    try {
        (void)AxisOrder::parse(word);
    } catch (const ConfigError&) {
        return false;
    }
    return true;
}

/// A switch that a table's cell writes with a few letters.
struct CellWord {
    std::string_view word, of;  ///< in front of the colon
    bool LayoutSwitches::*on;
};
constexpr std::array<CellWord, 4> kCellWords{{{"tp", "ov", &LayoutSwitches::overlap_tp},
                                              {"moe", "ov", &LayoutSwitches::overlap_moe},
                                              {"g", "bf16", &LayoutSwitches::bf16_gradients},
                                              {"m", "bf16", &LayoutSwitches::bf16_moments}}};

const CellWord* cell_word(std::string_view word, std::string_view of) {
    const auto found = std::find_if(kCellWords.begin(), kCellWords.end(), [&](const CellWord& c) { return c.word == word && c.of == of; });
    return found == kCellWords.end() ? nullptr : &*found;
}

/// "ov:tp" whose next word, after a comma, is "moe".
bool goes_on(std::string_view word, std::string_view next) {
    const std::size_t colon = word.find(':');
    return colon != std::string_view::npos && cell_word(next, word.substr(0, colon)) != nullptr;
}

class LayoutWords {
public:
    void read(const std::string& whole_word) {
        const std::string word = without_what_cells_add(whole_word);
        for (const SizeWord& size : kSizeWords) {
            if (!word.starts_with(size.name)) continue;
            const auto text = std::string_view(word).substr(size.name.size() + (word[size.name.size()] == '=' ? 1 : 0));
            const auto value = parse_integer(text);
            if (!value) break;
            if (*value < 1 || *value > (std::int64_t{1} << 24))
                problems_.add("{} = {} is not between 1 and 16777216; write a size such as {}2", size.name, *value, size.name);
            once(std::string(size.name));
            size.store(request_, *value);
            return;
        }
        if (word == "sp" || word == "nosp") {
            once("sp");
            sequence_parallel_ = word == "sp";
        } else if (const auto schedule = parse_split_schedule(word)) {
            once("schedule");
            request_.schedule = schedule;
        } else if (const auto exchange = parse_cp_comm_type(word)) {
            once("exchange of cp");
            request_.cp_comm_type = *exchange;
            whole_ = true;
        } else if (const auto kind = parse_schedule_kind(word)) {
            once("schedule");
            request_.runs = kind;
        } else if (word == "-") {
            known_.insert("-");  // no switches, or the schedule of one stage
        } else if (is_order(word)) {
            once("order of the axes");
            request_.order_cell = word;
        } else if (const auto recompute = parse_recompute(word == "sel" ? "selective" : word)) {
            once("recompute");
            named_ = *recompute;
        } else if (const auto modules = parse_set<RecomputeModule>(word, parse_module)) {
            once("recomputed modules");
            takes(Recompute::selective, word);
            request_.recompute_modules = *modules;
        } else if (const std::int64_t layers = layers_of_block(word); layers > 0) {
            once("block");
            takes(Recompute::full, word);
            request_.recompute_method = RecomputeMethod::block;
            request_.recompute_num_layers = layers;
            request_.says_block = true;
        } else if (word == "graphs=none") {
            once("graphs");
        } else if (read_cell(word)) {
        } else if (const auto scopes =
                       word.starts_with("graphs=") ? parse_set<CudaGraphScope>(word.substr(7), parse_cuda_graph_scope) : std::nullopt) {
            once("graphs");
            request_.cuda_graphs = *scopes;
        } else if (word.starts_with("graphs=")) {
            problems_.add(
                "{}: no scopes of CUDA graphs; join some of attn, mlp, moe, moe_router, moe_preprocess, layer, full_iteration with +",
                word.substr(0, 40));
        } else if (read_switch_word(word, switches_)) {
            once(parse_dispatcher_word(word) ? "dispatcher" : parse_sharding_word(word) ? "sharding" : word);
        } else {
            problems_.add(
                "'{}' is no part of a layout; write sizes (tp2 cp1 ep8 etp1 pp4 vpp2 mbs1), sp or nosp, p2p, all_gather or a2a, "
                "none, selective, full, blockN or modules (layernorm+moe_act), and what is switched on (fsdp, hsdp:N, alltoall, deepep, "
                "hybridep, "
                "tp-overlap, moe-overlap, bf16-grads, bf16-moments, graphs=attn+moe_router or graphs=none), or cells of a row of the table "
                "(tp2+sp, cp2ag, pp8x4, dp8, blk2, norm+act, ov:tp,moe, bf16:g,m, -)",
                word.substr(0, 40));
        }
    }

    LayoutInWords take() {
        if (known_.contains("-") && switches_ != LayoutSwitches{})
            problems_.add("'-' says that nothing is switched on, and {} stands there too; drop one of them",
                          switch_words(switches_).front());
        if (named_ && taken_ && *named_ != *taken_)
            problems_.add("{} is {} recompute, and {} stands there too; drop one of them", by_, to_string(*taken_), to_string(*named_));
        request_.recompute = taken_.value_or(named_.value_or(Recompute::none));
        if (known_.empty() && problems_.empty()) problems_.add("a layout without words; write one, such as 'tp2 pp4 mbs1'");
        problems_.throw_if_any();
        request_.says_sequence_parallel = sequence_parallel_ || whole_;
        request_.sequence_parallel = sequence_parallel_.value_or(request_.tp > 1 && !whole_);
        if (switches_ != LayoutSwitches{}) request_.switches = std::make_shared<const LayoutSwitches>(switches_);
        return request_;
    }

private:
    /// Reads the part after a size in a table's cell, as in tp2+sp, 2-sp, cp2ag, 2ag or pp8x4, and returns the size: tp2, cp2, pp8. Returns
    /// any other word unchanged.
    std::string without_what_cells_add(const std::string& word) {
        const auto size_behind = [&](std::string_view name, std::string_view added) -> std::optional<std::string> {
            if (!word.ends_with(added)) return std::nullopt;
            std::string_view size = std::string_view(word).substr(0, word.size() - added.size());
            if (size.starts_with(name)) size.remove_prefix(name.size());
            if (size.starts_with('=')) size.remove_prefix(1);
            if (!parse_integer(size)) return std::nullopt;
            return fmt::format("{}{}", name, size);
        };
        for (const std::string_view added : {"+sp", "-sp"}) {
            const auto size = size_behind("tp", added);
            if (!size) continue;
            once("sp");
            sequence_parallel_ = added == "+sp";
            return *size;
        }
        if (const std::size_t times = word.find('x'); word.starts_with("pp") && times != std::string::npos) {
            if (const auto chunks = parse_integer(std::string_view(word).substr(times + 1)); chunks && *chunks > 0) {
                once("vpp");
                request_.vpp = *chunks;
                return word.substr(0, times);
            }
        }
        for (const auto& [text, exchange] : kExchangesInCells) {
            const auto size = size_behind("cp", text);
            if (!size) continue;
            once("exchange of cp");
            request_.cp_comm_type = exchange;
            return *size;
        }
        return word;
    }

    static std::int64_t layers_of_block(std::string_view word) {
        const std::size_t name = word.starts_with("block") ? 5 : word.starts_with("blk") ? 3 : 0;
        return name > 0 ? parse_integer(word.substr(name)).value_or(0) : 0;
    }

    /// "ov:tp,moe" and the like.
    bool read_cell(const std::string& word) {
        const std::size_t colon = word.find(':');
        if (colon == std::string::npos) return false;
        const std::string of = word.substr(0, colon);
        const std::vector<std::string> said = split(word.substr(colon + 1), ',');
        if (said.empty() || std::any_of(said.begin(), said.end(), [&](const auto& one) { return cell_word(one, of) == nullptr; }))
            return false;
        for (const std::string& one : said) {
            const CellWord& cell = *cell_word(one, of);
            LayoutSwitches alone;
            alone.*cell.on = true;
            once(switch_words(alone).front());
            switches_.*cell.on = true;
        }
        return true;
    }

    void once(const std::string& what) {
        if (!known_.insert(what).second) problems_.add("{} stands twice; write it once", what);
    }

    /// A word that says what is recomputed, and by that how.
    void takes(Recompute recompute, const std::string& word) {
        if (taken_ && *taken_ != recompute) problems_.add("{} and {} exclude each other; drop one of them", by_, word);
        taken_ = recompute;
        by_ = word;
    }

    LayoutInWords request_;
    std::optional<Recompute> named_, taken_;
    std::string by_;  ///< the word that took it
    LayoutSwitches switches_;
    std::optional<bool> sequence_parallel_;
    bool whole_ = false;
    std::set<std::string> known_;
    Problems problems_;
};

}  // namespace

LayoutInWords parse_layout_words(std::string_view text) {
    constexpr std::string_view kBlanksAndCommas = " ,\t\r\n";
    LayoutWords words;
    std::string word;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        const std::string_view rest = text.substr(at + 1);
        const bool ends = c == ',' ? !goes_on(word, rest.substr(0, rest.find_first_of(kBlanksAndCommas)))
                                   : kBlanksAndCommas.find(c) != std::string_view::npos;
        if (!ends) {
            word += c;
        } else if (!word.empty()) {
            words.read(std::exchange(word, {}));
        }
    }
    if (!word.empty()) words.read(word);
    return words.take();
}

}  // namespace mgplan
