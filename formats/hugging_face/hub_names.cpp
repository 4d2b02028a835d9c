#include "formats/hugging_face/hub_names.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Row = std::pair<std::string_view, std::string_view>;

constexpr std::array kRepositories{
    Row{"deepseek-ai/DeepSeek-V2", "deepseek-v2"},
    Row{"deepseek-ai/DeepSeek-V2-Lite", "deepseek-v2-lite"},
    Row{"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
    Row{"deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"},
    Row{"deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"},
    Row{"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
    Row{"deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"},
    Row{"deepseek-ai/DeepSeek-V3.1", "deepseek-v3"},
    Row{"deepseek-ai/DeepSeek-V3.1-Base", "deepseek-v3"},
    Row{"deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-v3"},
    Row{"deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"},
    Row{"deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"},
    Row{"deepseek-ai/DeepSeek-V3.2-Exp-Base", "deepseek-v3.2"},
    Row{"deepseek-ai/DeepSeek-V4-Flash", "deepseek-v4-flash"},
    Row{"deepseek-ai/DeepSeek-V4-Flash-Base", "deepseek-v4-flash"},
    Row{"deepseek-ai/DeepSeek-V4-Pro", "deepseek-v4-pro"},
    Row{"deepseek-ai/DeepSeek-V4-Pro-Base", "deepseek-v4-pro"},
    Row{"openai/gpt-oss-20b", "gpt-oss-20b"},
    Row{"openai/gpt-oss-120b", "gpt-oss-120b"},
    Row{"moonshotai/Kimi-K2-Base", "kimi-k2"},
    Row{"moonshotai/Kimi-K2-Instruct", "kimi-k2"},
    Row{"moonshotai/Kimi-K2-Thinking", "kimi-k2-thinking"},
    Row{"moonshotai/Moonlight-16B-A3B", "moonlight-16b-a3b"},
    Row{"moonshotai/Moonlight-16B-A3B-Instruct", "moonlight-16b-a3b"},
    Row{"meta-llama/Llama-2-7b", "llama2-7b"},
    Row{"meta-llama/Llama-2-7b-hf", "llama2-7b"},
    Row{"meta-llama/Llama-2-7b-chat-hf", "llama2-7b"},
    Row{"meta-llama/Llama-2-13b", "llama2-13b"},
    Row{"meta-llama/Llama-2-13b-hf", "llama2-13b"},
    Row{"meta-llama/Llama-2-13b-chat-hf", "llama2-13b"},
    Row{"meta-llama/Llama-2-70b", "llama2-70b"},
    Row{"meta-llama/Llama-2-70b-hf", "llama2-70b"},
    Row{"meta-llama/Llama-2-70b-chat-hf", "llama2-70b"},
    Row{"meta-llama/Meta-Llama-3-8B", "llama3-8b"},
    Row{"meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"},
    Row{"meta-llama/Meta-Llama-3-70B", "llama3-70b"},
    Row{"meta-llama/Meta-Llama-3-70B-Instruct", "llama3-70b"},
    Row{"meta-llama/Llama-3.1-8B", "llama3.1-8b"},
    Row{"meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b"},
    Row{"meta-llama/Meta-Llama-3.1-8B", "llama3.1-8b"},
    Row{"meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3.1-8b"},
    Row{"meta-llama/Llama-3.1-70B", "llama3.1-70b"},
    Row{"meta-llama/Llama-3.1-70B-Instruct", "llama3.1-70b"},
    Row{"meta-llama/Meta-Llama-3.1-70B", "llama3.1-70b"},
    Row{"meta-llama/Meta-Llama-3.1-70B-Instruct", "llama3.1-70b"},
    Row{"meta-llama/Llama-3.3-70B-Instruct", "llama3.1-70b"},
    Row{"meta-llama/Llama-3.1-405B", "llama3.1-405b"},
    Row{"meta-llama/Llama-3.1-405B-Instruct", "llama3.1-405b"},
    Row{"meta-llama/Meta-Llama-3.1-405B", "llama3.1-405b"},
    Row{"meta-llama/Llama-3.2-1B", "llama3.2-1b"},
    Row{"meta-llama/Llama-3.2-1B-Instruct", "llama3.2-1b"},
    Row{"meta-llama/Llama-3.2-3B", "llama3.2-3b"},
    Row{"meta-llama/Llama-3.2-3B-Instruct", "llama3.2-3b"},
    Row{"mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"},
    Row{"mistralai/Mistral-Nemo-Base-2407", "mistral-nemo-12b"},
    Row{"mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"},
    Row{"mistralai/Mistral-Large-Instruct-2407", "mistral-large-123b"},
    Row{"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
    Row{"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"},
    Row{"mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b"},
    Row{"nvidia/Nemotron-4-340B-Base", "nemotron4-340b"},
    Row{"nvidia/Nemotron-H-8B-Base-8K", "nemotron-h-8b"},
    Row{"Qwen/Qwen2-57B-A14B", "qwen2-57b-a14b"},
    Row{"EleutherAI/pythia-6.9b", "pythia-6.9b"},
    Row{"EleutherAI/pythia-6.9b-deduped", "pythia-6.9b"},
    Row{"microsoft/phi-2", "phi-2"},
    Row{"microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"},
    Row{"microsoft/phi-4", "phi-4"},
    Row{"google/gemma-7b", "gemma-7b"},
    Row{"google/gemma-7b-it", "gemma-7b"},
    Row{"google/gemma-2-9b", "gemma2-9b"},
    Row{"google/gemma-2-9b-it", "gemma2-9b"},
    Row{"google/gemma-2-27b", "gemma2-27b"},
    Row{"google/gemma-2-27b-it", "gemma2-27b"},
    Row{"google/gemma-3-27b-pt", "gemma3-27b"},
    Row{"google/gemma-3-27b-it", "gemma3-27b"},
    Row{"allenai/OLMo-2-1124-7B", "olmo2-7b"},
    Row{"allenai/OLMo-2-1124-7B-Instruct", "olmo2-7b"},
    Row{"stabilityai/stablelm-3b-4e1t", "stablelm-3b"},
    Row{"tiiuae/falcon-40b", "falcon-40b"},
    Row{"tiiuae/falcon-40b-instruct", "falcon-40b"},
    Row{"HuggingFaceTB/SmolLM3-3B-Base", "smollm3-3b"},
    Row{"bigcode/starcoder2-3b", "starcoder2-3b"},
    Row{"zai-org/GLM-4.5-Air", "glm-4.5-air"},
    Row{"zai-org/GLM-4.5-Air-Base", "glm-4.5-air"},
    Row{"zai-org/GLM-4.5", "glm-4.5"},
    Row{"zai-org/GLM-4.5-Base", "glm-4.5"},
    Row{"zai-org/GLM-4.6", "glm-4.5"},
    Row{"zai-org/GLM-4.7", "glm-4.5"},
    Row{"zai-org/GLM-4.7-Flash", "glm-4.7-flash"},
    Row{"zai-org/GLM-4-9B-0414", "glm-4-9b"},
    Row{"zai-org/GLM-5", "glm-5"},
    Row{"allenai/OLMoE-1B-7B-0924", "olmoe-1b-7b"},
    Row{"MiniMaxAI/MiniMax-M2", "minimax-m2"},
    Row{"MiniMaxAI/MiniMax-M2.1", "minimax-m2"},
    Row{"MiniMaxAI/MiniMax-M2.5", "minimax-m2"},
    Row{"Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"},
    Row{"Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b"},
    Row{"Qwen/Qwen1.5-MoE-A2.7B", "qwen1.5-moe-a2.7b"},
    Row{"Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b"},
    Row{"ByteDance-Seed/Seed-OSS-36B-Base", "seed-oss-36b"},
    Row{"ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss-36b"},
    Row{"deepseek-ai/deepseek-llm-7b-base", "deepseek-llm-7b"},
    Row{"deepseek-ai/deepseek-llm-7b-chat", "deepseek-llm-7b"},
    Row{"moonshotai/Kimi-Linear-48B-A3B-Base", "kimi-linear-48b-a3b"},
    Row{"CohereForAI/c4ai-command-r-v01", "command-r-35b"},
    Row{"MiniMaxAI/MiniMax-Text-01", "minimax-text-01"},
    Row{"MiniMaxAI/MiniMax-M1-80k", "minimax-text-01"},
    Row{"xai-org/grok-1", "grok-1"},
    Row{"mistralai/Mistral-Small-4-119B-2603", "mistral-small-4"},
    Row{"baidu/ERNIE-4.5-21B-A3B-PT", "ernie-4.5-21b-a3b"},
    Row{"baidu/ERNIE-4.5-21B-A3B-Base-PT", "ernie-4.5-21b-a3b"},
    Row{"ai21labs/Jamba-v0.1", "jamba-v0.1"},
    Row{"XiaomiMiMo/MiMo-7B-Base", "mimo-7b"},
    Row{"XiaomiMiMo/MiMo-7B-RL", "mimo-7b"},
    Row{"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"},
    Row{"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-Base-BF16", "nemotron-3-nano-30b-a3b"},
    Row{"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "nemotron-3-super-120b-a12b"},
    Row{"nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2"},
    Row{"nvidia/NVIDIA-Nemotron-Nano-9B-v2-Base", "nemotron-nano-9b-v2"},
    Row{"nvidia/NVIDIA-Nemotron-Nano-12B-v2", "nemotron-nano-12b-v2"},
    Row{"nvidia/NVIDIA-Nemotron-Nano-12B-v2-Base", "nemotron-nano-12b-v2"},
};

/// Families whose repositories are called OWNER/FAMILY-SIZE, or that with an ending.
constexpr std::array<Row, 3> kFamilies{{{"qwen/qwen2.5-", "qwen2.5-"}, {"qwen/qwen3-", "qwen3-"}, {"qwen/qwen3.5-", "qwen3.5-"}}};
constexpr std::array<std::string_view, 2> kEndings{"-instruct", "-base"};
constexpr std::array<std::string_view, 23> kFamilyPresets{
    "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b",  "qwen2.5-14b",     "qwen2.5-32b",       "qwen2.5-72b",      "qwen3-0.6b",
    "qwen3-1.7b",   "qwen3-4b",     "qwen3-8b",   "qwen3-14b",   "qwen3-32b",       "qwen3-30b-a3b",     "qwen3-235b-a22b",  "qwen3.5-0.8b",
    "qwen3.5-2b",   "qwen3.5-4b",   "qwen3.5-9b", "qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3.5-122b-a10b", "qwen3.5-397b-a17b"};

/// A family with the layers of another one, size by size.
struct AlikeFamily {
    std::string_view family, alike;
    bool sees = false;  ///< its vision encoder comes on top
};

/// Qwen2, Qwen2-VL, Qwen2.5-VL and Qwen3-VL were compared with alibaba/Pai-Megatron-Patch, examples/qwen2, qwen2_vl, qwen2_5_vl and
/// qwen3_vl; the others are trained further from the models of their row, by their own names and descriptions.
constexpr std::array kAlikeFamilies{AlikeFamily{"qwen2.5-math-", "qwen2.5-"},
                                    AlikeFamily{"qwen2.5-coder-", "qwen2.5-"},
                                    AlikeFamily{"qwen2.5-vl-", "qwen2.5-", true},
                                    AlikeFamily{"qwen2.5-", "qwen2.5-"},
                                    AlikeFamily{"qwen2-vl-2b", "qwen2.5-1.5b", true},
                                    AlikeFamily{"qwen2-vl-", "qwen2.5-", true},
                                    AlikeFamily{"qwen2-", "qwen2.5-"},
                                    AlikeFamily{"qwen3-coder-", "qwen3-"},
                                    AlikeFamily{"qwen3-vl-2b", "qwen3-1.7b", true},
                                    AlikeFamily{"qwen3-vl-", "qwen3-", true},
                                    AlikeFamily{"qwen3-", "qwen3-"},
                                    AlikeFamily{"qwen3.5-", "qwen3.5-", true},
                                    AlikeFamily{"deepseek-r1-distill-qwen-7b", "qwen2.5-7b"},
                                    AlikeFamily{"deepseek-r1-distill-qwen-14b", "qwen2.5-14b"},
                                    AlikeFamily{"deepseek-r1-distill-qwen-32b", "qwen2.5-32b"},
                                    AlikeFamily{"deepseek-r1-distill-llama-", "llama3.1-"}};
/// Endings of copies and successors. DeepSeek-R1-Distill-Qwen-1.5B, whose embeddings are not tied, is in no family.
constexpr std::array<std::string_view, 9> kEndingsOfCopies{"-instruct", "-base", "-chat", "-it",  "-hf",
                                                           "-thinking", "-2507", "-fp8",  "-bf16"};

std::string without_endings(std::string name) {
    for (bool found = true; found;) {
        found = false;
        for (const std::string_view ending : kEndingsOfCopies) {
            if (!name.ends_with(ending) || name.size() == ending.size()) continue;
            name.resize(name.size() - ending.size());
            found = true;
        }
    }
    return name;
}

std::string_view without_owner(std::string_view repository) {
    return repository.substr(repository.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace

bool looks_like_hub_name(std::string_view text) {
    const auto slash = text.find('/');
    if (slash == std::string_view::npos || slash == 0 || slash + 1 == text.size() || text.find('/', slash + 1) != std::string_view::npos)
        return false;
    if (text.starts_with('.') || text.starts_with('~') || text.size() > 140) return false;
    const std::string lower = lower_case(text);
    for (const std::string_view ending : {".json", ".yaml", ".yml", ".sh", ".txt", ".args"}) {
        if (lower.ends_with(ending)) return false;
    }
    return std::all_of(lower.begin(), lower.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '/';
    });
}

std::span<const Row> hub_repositories() {
    return kRepositories;
}

std::string plain_name(std::string_view name) {
    std::string plain = lower_case(name);
    std::erase_if(plain, [](char c) { return (c < 'a' || c > 'z') && (c < '0' || c > '9'); });
    return plain;
}

std::string_view preset_with_layers_of(std::string_view repository) {
    if (const std::string_view exact = preset_of_hub_name(repository); !exact.empty()) return exact;
    const std::string whole = plain_name(without_owner(repository));
    for (const auto& [row, preset] : kRepositories) {
        if (plain_name(without_owner(row)) == whole) return preset;
    }
    const std::string name = without_endings(lower_case(without_owner(repository)));
    for (const auto& [row, preset] : kRepositories) {
        if (plain_name(without_endings(lower_case(without_owner(row)))) == plain_name(name)) return preset;
    }
    for (const AlikeFamily& row : kAlikeFamilies) {
        if (!name.starts_with(row.family)) continue;
        const std::string wanted = std::string(row.alike) + name.substr(row.family.size());
        const auto is_wanted = [&](std::string_view preset) { return preset == wanted; };
        if (const auto* const found = std::find_if(kFamilyPresets.begin(), kFamilyPresets.end(), is_wanted); found != kFamilyPresets.end())
            return *found;
        const auto* const repository_row =
            std::find_if(kRepositories.begin(), kRepositories.end(), [&](const Row& one) { return is_wanted(one.second); });
        if (repository_row != kRepositories.end()) return repository_row->second;
    }
    return {};
}

std::string named_with_layers(const std::string& repository) {
    const std::string_view preset = preset_with_layers_of(repository);
    if (preset.empty()) return repository;
    const std::string name = lower_case(without_owner(repository));
    const auto* const family =
        std::find_if(kAlikeFamilies.begin(), kAlikeFamilies.end(), [&](const AlikeFamily& row) { return name.starts_with(row.family); });
    const bool sees = family != kAlikeFamilies.end() && family->sees;
    return fmt::format("{}{}{}", repository, preset == preset_of_hub_name(repository) ? "" : fmt::format(" with the layers of {}", preset),
                       sees ? " (the language model alone, without its vision encoder)" : "");
}

std::string_view preset_of_hub_name(std::string_view repository) {
    std::string name = lower_case(repository);
    for (const auto& [row, preset] : kRepositories) {
        if (lower_case(row) == name) return preset;
    }
    for (const auto& ending : kEndings) {
        if (name.ends_with(ending)) name.resize(name.size() - ending.size());
    }
    for (const auto& [owner, family] : kFamilies) {
        if (!name.starts_with(owner)) continue;
        const std::string wanted = std::string(family) + name.substr(owner.size());
        const auto* const found = std::find(kFamilyPresets.begin(), kFamilyPresets.end(), wanted);
        if (found != kFamilyPresets.end()) return *found;
    }
    return {};
}

}  // namespace mgplan::formats
