#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "formats/recognise/recognise.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

/// Scripts that build decoder-only language models although a part of their name is one of kOtherNetworks.
constexpr std::array<std::string_view, 4> kDecoderScripts{"pretrain_gpt.py", "pretrain_mamba.py", "pretrain_hybrid.py", "train_gpt.py"};

/// Parts of a script's name, and the networks that such scripts build. Source: the pretrain_*.py and examples/*/ of Megatron-LM over its
/// releases, of its forks (DeepSpeed, MindSpeed-MM, Megatron-LM-das, Megatron Patch).
constexpr std::array<std::pair<std::string_view, std::string_view>, 36> kOtherNetworks{{{"bert", "an encoder (BERT)"},
                                                                                        {"t5", "an encoder and a decoder (T5)"},
                                                                                        {"bart", "an encoder and a decoder"},
                                                                                        {"ict", "encoders for retrieval"},
                                                                                        {"realm", "encoders for retrieval"},
                                                                                        {"biencoder", "encoders for retrieval"},
                                                                                        {"orqa", "encoders for retrieval"},
                                                                                        {"retro", "a model with retrieval (Retro)"},
                                                                                        {"rwkv", "a recurrent network (RWKV)"},
                                                                                        {"vision", "a vision model"},
                                                                                        {"vit", "a vision model"},
                                                                                        {"dino", "a vision model"},
                                                                                        {"swin", "a vision model"},
                                                                                        {"inpaint", "a vision model"},
                                                                                        {"clip", "a vision model"},
                                                                                        {"vlm", "a vision-language model"},
                                                                                        {"vl", "a vision-language model"},
                                                                                        {"qwen2vl", "a vision-language model"},
                                                                                        {"qwen25vl", "a vision-language model"},
                                                                                        {"qwen3vl", "a vision-language model"},
                                                                                        {"internvl", "a vision-language model"},
                                                                                        {"deepseekvl", "a vision-language model"},
                                                                                        {"llava", "a vision-language model"},
                                                                                        {"mimo", "a model of several modalities"},
                                                                                        {"multimodal", "a model of several modalities"},
                                                                                        {"omni", "a model of several modalities"},
                                                                                        {"audio", "a model of speech"},
                                                                                        {"speech", "a model of speech"},
                                                                                        {"whisper", "a model of speech"},
                                                                                        {"video", "a model of pictures or video"},
                                                                                        {"hunyuanvideo", "a model of pictures or video"},
                                                                                        {"sora", "a model of pictures or video"},
                                                                                        {"wan", "a model of pictures or video"},
                                                                                        {"dit", "a model of pictures or video"},
                                                                                        {"flux", "a model of pictures or video"},
                                                                                        {"diffusion", "a model of pictures or video"}}};

/// Names of scripts that say nothing of the network; the folder's name is looked at too.
constexpr std::array<std::string_view, 6> kGeneralNames{"train.py", "pretrain.py", "finetune.py", "sft.py", "main.py", "run.py"};

std::string_view network_of_name(std::string_view name) {
    std::string parts = lower_case(name);
    std::replace_if(
        parts.begin(), parts.end(), [](char c) { return c == '_' || c == '-' || c == '.'; }, ' ');
    for (const std::string& part : split(parts, ' ')) {
        for (const auto& [word, network] : kOtherNetworks) {
            if (part == word) return network;
        }
    }
    return "";
}

}  // namespace

std::string_view other_network_of_script(std::string_view path) {
    const auto last = path.rfind('/');
    const std::string_view name = last == std::string_view::npos ? path : path.substr(last + 1);
    if (std::find(kDecoderScripts.begin(), kDecoderScripts.end(), name) != kDecoderScripts.end()) return "";
    if (const auto network = network_of_name(name); !network.empty()) return network;
    if (last == std::string_view::npos || std::find(kGeneralNames.begin(), kGeneralNames.end(), name) == kGeneralNames.end()) return "";
    const std::string_view folder = path.substr(0, last);
    return network_of_name(folder.substr(folder.rfind('/') + 1));  // npos + 1 is 0
}

}  // namespace mgplan::formats
