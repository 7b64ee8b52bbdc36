#include <string>

#include "gpu.h"
#include "program.h"

using namespace gpu;
namespace cu = standin::cuda;

namespace {

constexpr const char* kHead = ".version 6.3\n.target sm_52\n.address_size 64\n";

// dst[i] = src[i] * factor, one thread per float.
const std::string kScale = std::string(kHead) + R"(
.visible .entry scale(.param .u64 scale_dst, .param .u64 scale_src, .param .f32 scale_factor, .param .u32 scale_n)
{
	.reg .pred 	%p<2>;
	.reg .f32 	%f<4>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<8>;
	ld.param.u64 	%rd1, [scale_dst];
	ld.param.u64 	%rd2, [scale_src];
	ld.param.f32 	%f1, [scale_factor];
	ld.param.u32 	%r1, [scale_n];
	mov.u32 	%r2, %ctaid.x;
	mov.u32 	%r3, %ntid.x;
	mov.u32 	%r4, %tid.x;
	mad.lo.s32 	%r5, %r2, %r3, %r4;
	setp.ge.u32 	%p1, %r5, %r1;
	@%p1 bra 	$DONE;
	cvta.to.global.u64 	%rd3, %rd1;
	cvta.to.global.u64 	%rd4, %rd2;
	mul.wide.u32 	%rd5, %r5, 4;
	add.s64 	%rd6, %rd4, %rd5;
	add.s64 	%rd7, %rd3, %rd5;
	ld.global.f32 	%f2, [%rd6];
	mul.f32 	%f3, %f2, %f1;
	st.global.f32 	[%rd7], %f3;
$DONE:
	ret;
}
)";

class Module {
 public:
  explicit Module(const std::string& text) { CU(cuModuleLoadDataEx(&module_, text.c_str(), 0, nullptr, nullptr)); }
  ~Module() { CU(cuModuleUnload(module_)); }
  Module(const Module&) = delete;
  void* function(const char* name) const {
    void* found = nullptr;
    CU(cuModuleGetFunction(&found, module_, name));
    return found;
  }

 private:
  void* module_ = nullptr;
};

void scale(void* function, uint64_t to, uint64_t from, float factor, unsigned count, void* stream) {
  void* values[] = {&to, &from, &factor, &count};
  CU(cuLaunchKernel(function, (count + 31) / 32, 1, 1, 32, 1, 1, 0, stream, values, nullptr));
}

constexpr unsigned kCount = 1000;

void kernel_scales() {
  const Device device;
  const Stream stream;
  const Module module(kScale);
  const Buffer a(kCount * 4), b(kCount * 4);
  std::vector<float> values(kCount);
  for (unsigned i = 0; i < kCount; ++i) values[i] = static_cast<float>(i) * 0.37F;
  write(a, values, stream);
  scale(module.function("scale"), b, a, 1.7F, kCount, stream);
  const auto result = read<float>(b, kCount, stream);
  for (unsigned i = 0; i < kCount; ++i) EXPECT(result[i] == values[i] * 1.7F);
}

void kernel_without_a_wait() {
  const Device device;
  const Stream one, two;
  const Module module(kScale);
  const Buffer a(kCount * 4), b(kCount * 4);
  CU(cuMemsetD8Async(a, 0, kCount * 4, one));
  scale(module.function("scale"), b, a, 2.0F, kCount, two);
  one.finish();
  two.finish();
}

// A copy of the last bytes, which only the last threads of the kernel write.
void copy_of_a_kernels_output_without_a_wait() {
  const Device device;
  const Stream one, two;
  const Module module(kScale);
  const Buffer a(kCount * 4), b(kCount * 4), c(4);
  CU(cuMemsetD8Async(a, 0, kCount * 4, one));
  scale(module.function("scale"), b, a, 2.0F, kCount, one);
  CU(cuMemcpyDtoDAsync_v2(c, b + kCount * 4 - 4, 4, two));
  one.finish();
  two.finish();
}

void kernel_beyond_the_end() {
  const Device device;
  const Stream stream;
  const Module module(kScale);
  const Buffer a(kCount * 4), b(kCount * 4);
  CU(cuMemsetD8Async(a, 0, kCount * 4, stream));
  scale(module.function("scale"), b, a, 2.0F, kCount + 1, stream);
  cuda().cuStreamSynchronize(stream);
}

void kernel_misaligned() {
  const Device device;
  const Stream stream;
  const Module module(kScale);
  const Buffer a(kCount * 4), b(kCount * 4);
  CU(cuMemsetD8Async(a, 0, kCount * 4, stream));
  scale(module.function("scale"), b, a + 2, 2.0F, 1, stream);
  cuda().cuStreamSynchronize(stream);
}

// With reports at exit only, the error is sticky: every later call fails with it.
void sticky_error() {
  const Device device;
  const Stream stream;
  const Module module(kScale);
  const Buffer a(kCount * 4), b(kCount * 4);
  CU(cuMemsetD8Async(a, 0, kCount * 4, stream));
  scale(module.function("scale"), b, a, 2.0F, kCount + 1, stream);
  EXPECT_CODE(cu::kIllegalAddress, cuda().cuStreamSynchronize(stream));
  uint64_t c = 0;
  EXPECT_CODE(cu::kIllegalAddress, cuda().cuMemAlloc_v2(&c, 16));
  std::exit(0);
}

void unknown_instruction() {
  const Device device;
  void* module = nullptr;
  const std::string text = std::string(kHead) + ".visible .entry x()\n{\n\tbar.sync 0;\n\tret;\n}\n";
  cuda().cuModuleLoadDataEx(&module, text.c_str(), 0, nullptr, nullptr);
}

void newer_ptx_than_the_driver() {
  const Device device;
  void* module = nullptr;
  const char* text = ".version 99.0\n.target sm_52\n.address_size 64\n.visible .entry x()\n{\n\tret;\n}\n";
  EXPECT_CODE(cu::kUnsupportedPtx, cuda().cuModuleLoadDataEx(&module, text, 0, nullptr, nullptr));
}

void leaked_module() {
  const Device device;
  void* module = nullptr;
  CU(cuModuleLoadDataEx(&module, kScale.c_str(), 0, nullptr, nullptr));
}

}  // namespace

std::vector<Program> kernel_programs() {
  return {
      {"kernel_scales", 1, "", kernel_scales},
      {"kernel_without_a_wait", 1, "two accesses that nothing orders", kernel_without_a_wait},
      {"copy_of_a_kernels_output_without_a_wait", 1, "two accesses that nothing orders",
       copy_of_a_kernels_output_without_a_wait},
      {"kernel_beyond_the_end", 1, "access outside every device allocation", kernel_beyond_the_end},
      {"kernel_misaligned", 1, "misaligned access", kernel_misaligned},
      {"sticky_error", 1, "access outside every device allocation", sticky_error},
      {"unknown_instruction", 1, "unknown instruction: bar.sync 0", unknown_instruction},
      {"newer_ptx_than_the_driver", 1, "", newer_ptx_than_the_driver},
      {"leaked_module", 1, "module, loaded in", leaked_module},
  };
}
