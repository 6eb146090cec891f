// Owns MSL's vector constructors: a type's name followed by ( builds one. Last, since nothing after can declare them.
#pragma once
#pragma clang system_header

#define float2(...) msl::make<float2>(__VA_ARGS__)
#define float3(...) msl::make<float3>(__VA_ARGS__)
#define float4(...) msl::make<float4>(__VA_ARGS__)
#define half2(...) msl::make<half2>(__VA_ARGS__)
#define half3(...) msl::make<half3>(__VA_ARGS__)
#define half4(...) msl::make<half4>(__VA_ARGS__)
#define bfloat2(...) msl::make<bfloat2>(__VA_ARGS__)
#define bfloat4(...) msl::make<bfloat4>(__VA_ARGS__)
#define int2(...) msl::make<int2>(__VA_ARGS__)
#define int4(...) msl::make<int4>(__VA_ARGS__)
#define uint2(...) msl::make<uint2>(__VA_ARGS__)
#define uint3(...) msl::make<uint3>(__VA_ARGS__)
#define uint4(...) msl::make<uint4>(__VA_ARGS__)
#define ushort2(...) msl::make<ushort2>(__VA_ARGS__)
#define ushort4(...) msl::make<ushort4>(__VA_ARGS__)
#define uchar4(...) msl::make<uchar4>(__VA_ARGS__)
#define ulong2(...) msl::make<ulong2>(__VA_ARGS__)
