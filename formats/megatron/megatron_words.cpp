#include "formats/megatron/megatron_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

// Longer phrases precede those that they hold.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kPhrases{
    {{"--no-overlap p2p", "--no-overlap-p2p-communication"},
     {"--group-size", "--microbatch-group-size-per-virtual-pipeline-stage"},
     {"--pipeline-layout", "--pipeline-model-parallel-layout"},
     {"--micro-batch", "--micro-batch-size"},
     {"--seq", "--seq-length"},
     {"--ep", "--expert-model-parallel-size"},
     {"--attention flash", "--attention-backend flash"},
     {"count embedding or loss as layers", "--account-for-embedding-in-pipeline-split or --account-for-loss-in-pipeline-split"},
     {"set first or last stage layers", "--decoder-first-pipeline-num-layers or --decoder-last-pipeline-num-layers"},
     {"give a layout string", "--pipeline-model-parallel-layout"},
     {"a layout string", "--pipeline-model-parallel-layout"}}};

bool continues_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

}  // namespace

std::string in_megatron_words(std::string_view rule) {
    std::string text(rule);
    for (std::size_t at = 0; at < text.size(); ++at) {
        for (const auto& [own, flag] : kPhrases) {
            if (text.compare(at, own.size(), own) != 0) continue;
            if (at + own.size() < text.size() && continues_word(text[at + own.size()])) continue;
            text.replace(at, own.size(), flag);
            at += flag.size() - 1;
            break;
        }
    }
    return text;
}

std::string in_settings(std::string_view text, const SettingOfFlag& setting_of) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const auto begin = std::min(text.find("--", at), text.size());
        out += text.substr(at, begin - at);
        std::size_t end = begin;
        while (end < text.size() && (text[end] == '-' || std::isalnum(static_cast<unsigned char>(text[end])) != 0)) ++end;
        out += setting_of(std::string(text.substr(begin, end - begin)));
        at = end;
    }
    return out;
}

Job read_settings_as_arguments(const std::vector<std::string>& words, const std::string& where, const MegatronSurroundings& surroundings,
                               const SettingOfFlag& setting_of) {
    const auto named = [&](std::vector<std::string> texts) {
        for (std::string& text : texts) text = in_settings(text, setting_of);
        return texts;
    };
    try {
        Job job = read_megatron_arguments(words, where, surroundings);
        job.assumptions = named(std::move(job.assumptions));
        return job;
    } catch (const MissingFactError& error) {
        throw MissingFactError(named(error.problems()));
    } catch (const ConfigError& error) {
        throw ConfigError(named(error.problems()));
    }
}

}  // namespace mgplan::formats
